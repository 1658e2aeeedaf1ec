// SPDX-License-Identifier: Apache-2.0
// dm_control's point mass: two actuators push a sphere in a plane to the middle.
#pragma once

#include <cmath>
#include <cstdint>

#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts::dmc {

class PointMass final : public Task {
 public:
  // `any_directions`: what the actuators push in is drawn for every episode.
  PointMass(Physics& physics, bool any_directions)
      : Task(physics),
        any_directions_(any_directions),
        target_(Id(ModelObject::kGeom, "target")),
        mass_(Id(ModelObject::kGeom, "pointmass")) {}

  void DrawModel(Rng& rng) override {
    if (!any_directions_) return;
    double first[2];
    double second[2];
    DrawDirection(rng, first);
    do {
      DrawDirection(rng, second);
    } while (std::abs(first[0] * second[0] + first[1] * second[1]) > 0.9);
    // how far each joint moves each tendon
    double* const gains = physics_.Own("wrap_prm").data();
    for (std::int32_t i = 0; i < 2; ++i) {
      gains[i] = first[i];
      gains[2 + i] = second[i];
    }
  }

  DataArrays Reads() const override { return kGeomXpos; }
  void DrawStart(Rng& rng) override { RandomizeJoints(physics_, rng); }

  double Reward() const override {
    const double size = model_.geom_size[3 * target_];
    const double distance =
        mujoco::Distance(data_.geom_xpos + 3 * target_, data_.geom_xpos + 3 * mass_);
    const double near_target = Tolerance(distance, {0, size}, size);
    return near_target * ((SmallControl(data_.ctrl, model_.nu) + 4) / 5);
  }

  void Observe(Observation& obs) const override {
    obs.Vector("position", data_.qpos, model_.nq);
    obs.Vector("velocity", data_.qvel, model_.nv);
  }

 private:
  static void DrawDirection(Rng& rng, double* direction) {
    for (std::int32_t i = 0; i < 2; ++i) direction[i] = mujoco::StandardNormal(rng);
    const double norm = mujoco::Norm(direction, 2);
    for (std::int32_t i = 0; i < 2; ++i) direction[i] /= norm;
  }

  const bool any_directions_;
  const std::int32_t target_;
  const std::int32_t mass_;
};

inline constexpr TaskEntry kPointMassTasks[] = {
    {"PointMassEasy-v1", 0, 2'500, Make<PointMass, false>},
    {"PointMassHard-v1", 0, 2'500, Make<PointMass, true>},
};

}  // namespace rollouts::dmc
