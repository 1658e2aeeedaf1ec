// SPDX-License-Identifier: Apache-2.0
// dm_control's swimmer: a chain of links in a viscous plane moves its nose to a target.
#pragma once

#include <cmath>

#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts::dmc {

class Swimmer final : public Task {
 public:
  explicit Swimmer(Physics& physics)
      : Task(physics),
        target_(Id(ModelObject::kGeom, "target")),
        light_(Id(ModelObject::kLight, "target_light")),
        nose_position_(GeomPosition("nose")),
        head_(BodyRotation("head")),
        velocities_(Sensor("head_vel")) {}

  void DrawModel(Rng& rng) override {
    const double box = rng.Uniform() < 0.2 ? 0.3 : 2;  // metres
    double* const position = &physics_.Own("geom_pos")[3 * target_];
    double* const light = &physics_.Own("light_pos")[3 * light_];
    for (std::int32_t i = 0; i < 2; ++i) light[i] = position[i] = rng.Uniform(-box, box);
  }

  DataArrays Reads() const override { return kGeomXpos | kXmat | kSensordata; }
  void DrawStart(Rng& rng) override { RandomizeJoints(physics_, rng); }

  double Reward() const override {
    const double size = model_.geom_size[3 * target_];
    double to_target[3];
    ToTarget(to_target);
    // lengths are those of the plane, seen by the head
    double seen[2];
    for (std::int32_t i = 0; i < 2; ++i) seen[i] = Seen(to_target, i);
    return Tolerance(mujoco::Norm(seen, 2), {0, size}, 5 * size, Sigmoid::kLongTail);
  }

  void Observe(Observation& obs) const override {
    double to_target[3];
    ToTarget(to_target);
    obs.Vector("joints", data_.qpos + 3, model_.nq - 3);
    obs.Begin("to_target");
    for (std::int32_t i = 0; i < 2; ++i) obs.Put(Seen(to_target, i));
    // each link has a velocimeter's numbers, then a gyroscope's: those of the plane are shown
    obs.Begin("body_velocities");
    const double* const end = data_.sensordata + model_.nsensordata;
    for (const double* link = velocities_; link < end; link += 6) {
      obs.Put(link, 2);
      obs.Put(link[5]);
    }
  }

 private:
  void ToTarget(double* vector) const {
    const double* target = data_.geom_xpos + 3 * target_;
    for (std::int32_t i = 0; i < 3; ++i) vector[i] = target[i] - nose_position_[i];
  }
  double Seen(const double* vector, std::int32_t axis) const {
    return vector[0] * head_[axis] + vector[1] * head_[3 + axis] + vector[2] * head_[6 + axis];
  }

  const std::int32_t target_;
  const std::int32_t light_;
  const double* const nose_position_;
  const double* const head_;
  const double* const velocities_;
};

inline constexpr TaskEntry kSwimmerTasks[] = {
    {"SwimmerSwimmer6-v1", 0.03, 6'000, Make<Swimmer>, ModelAndAssets(R"({"n_joints": 6})")},
    {"SwimmerSwimmer15-v1", 0.03, 15'000, Make<Swimmer>, ModelAndAssets(R"({"n_joints": 15})")},
};

}  // namespace rollouts::dmc
