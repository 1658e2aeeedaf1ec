// SPDX-License-Identifier: Apache-2.0
// dm_control's reacher: an arm in a plane reaches for a target.
#pragma once

#include <cmath>

#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts::dmc {

class Reacher final : public Task {
 public:
  Reacher(Physics& physics, bool hard)
      : Task(physics),
        target_size_(hard ? 0.015 : 0.05),
        target_(Id(ModelObject::kGeom, "target")),
        finger_(Id(ModelObject::kGeom, "finger")) {}

  void DrawModel(Rng& rng) override {
    physics_.Own("geom_size")[3 * target_] = target_size_;
    const double angle = rng.Uniform(0, 2 * kPi);
    const double radius = rng.Uniform(0.05, 0.20);  // metres
    double* const position = &physics_.Own("geom_pos")[3 * target_];
    position[0] = radius * std::sin(angle);
    position[1] = radius * std::cos(angle);
  }

  DataArrays Reads() const override { return kGeomXpos; }
  void DrawStart(Rng& rng) override { RandomizeJoints(physics_, rng); }

  double Reward() const override {
    double to_target[2];
    ToTarget(to_target);
    const double radii = model_.geom_size[3 * target_] + model_.geom_size[3 * finger_];
    return Tolerance(mujoco::Norm(to_target, 2), {0, radii});
  }

  void Observe(Observation& obs) const override {
    double to_target[2];
    ToTarget(to_target);
    obs.Vector("position", data_.qpos, model_.nq);
    obs.Vector("to_target", to_target, 2);
    obs.Vector("velocity", data_.qvel, model_.nv);
  }

 private:
  void ToTarget(double* vector) const {
    for (std::int32_t i = 0; i < 2; ++i) {
      vector[i] = data_.geom_xpos[3 * target_ + i] - data_.geom_xpos[3 * finger_ + i];
    }
  }

  const double target_size_;  // metres
  const std::int32_t target_;
  const std::int32_t finger_;
};

inline constexpr TaskEntry kReacherTasks[] = {
    {"ReacherEasy-v1", 0, 2'500, Make<Reacher, false>},
    {"ReacherHard-v1", 0, 2'500, Make<Reacher, true>},
};

}  // namespace rollouts::dmc
