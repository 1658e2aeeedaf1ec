// SPDX-License-Identifier: Apache-2.0
// dm_control's reacher: an arm in a plane reaches for a target.
#pragma once

#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

struct Reacher : SuiteTask {
  static constexpr DataArrays kReads = kGeomXpos;
  static constexpr const char* kDraws = "geom_pos";
  double target_size;  // metres
  std::int32_t target;
  std::int32_t finger;

  Reacher(const auto& model, bool hard)
      : target_size(hard ? 0.015 : 0.05),
        target(model.Geom("target")),
        finger(model.Geom("finger")) {}

  void ChangeModel(auto& model) const { model.Set("geom_size", 3 * target, target_size); }

  ROLLOUTS_HD void DrawModel(auto& start, Rng& rng) const {
    const double angle = rng.Uniform(0, 2 * kPi);
    const double radius = rng.Uniform(0.05, 0.20);  // metres
    start.Put(DrawnField::kGeomPos, 3 * target, radius * LibrarySin(angle));
    start.Put(DrawnField::kGeomPos, 3 * target + 1, radius * LibraryCos(angle));
  }
  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const { RandomizeJoints(start, rng); }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    double to_target[3];
    ToTarget(sim, to_target);
    const double radii = static_cast<double>(sim.model.geom_size[3 * target]) +
                         sim.model.geom_size[3 * finger];
    return Tolerance(mujoco::Norm(to_target, 2), {0, radii});
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    double to_target[3];
    ToTarget(sim, to_target);
    obs.Vector("position", sim.data.qpos, sim.model.nq);
    obs.Vector("to_target", to_target, 2);
    obs.Vector("velocity", sim.data.qvel, sim.model.nv);
  }

 private:
  ROLLOUTS_HD void ToTarget(const auto& sim, double* way) const {
    Subtract(sim.data.geom_xpos + 3 * target, sim.data.geom_xpos + 3 * finger, way);
  }
};

template <typename Entry>
inline constexpr Entry kReacherTasks[] = {
    {"ReacherEasy-v1", 0, 2'500, Make<Entry, Reacher, false>},
    {"ReacherHard-v1", 0, 2'500, Make<Entry, Reacher, true>},
};

}  // namespace rollouts::dmc
