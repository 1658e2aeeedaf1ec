// SPDX-License-Identifier: Apache-2.0
// dm_control's point mass: two actuators push a sphere in a plane to the middle.
#pragma once

#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

struct PointMass : SuiteTask {
  static constexpr DataArrays kReads = kGeomXpos;
  bool any_directions;  // every episode draws the actuators' directions
  std::int32_t target;
  std::int32_t mass;

  PointMass(const auto& model, bool any_directions)
      : any_directions(any_directions),
        target(model.Geom("target")),
        mass(model.Geom("pointmass")) {}

  ROLLOUTS_HD void DrawModel(auto& start, Rng& rng) const {
    if (!any_directions) return;
    double first[2];
    double second[2];
    DrawDirection(rng, first);
    do {
      DrawDirection(rng, second);
    } while (Abs(first[0] * second[0] + first[1] * second[1]) > 0.9);
    // how far each joint moves each tendon
    for (std::int32_t i = 0; i < 2; ++i) {
      start.Put(DrawnField::kWrapPrm, i, first[i]);
      start.Put(DrawnField::kWrapPrm, 2 + i, second[i]);
    }
  }
  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const { RandomizeJoints(start, rng); }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    const double size = sim.model.geom_size[3 * target];
    const double distance =
        mujoco::Distance(sim.data.geom_xpos + 3 * target, sim.data.geom_xpos + 3 * mass);
    const double near_target = Tolerance(distance, {0, size}, size);
    return near_target * ((SmallControl(sim.data.ctrl, sim.model.nu) + 4) / 5);
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    obs.Vector("position", sim.data.qpos, sim.model.nq);
    obs.Vector("velocity", sim.data.qvel, sim.model.nv);
  }

 private:
  ROLLOUTS_HD static void DrawDirection(Rng& rng, double* direction) {
    for (std::int32_t i = 0; i < 2; ++i) direction[i] = mujoco::StandardNormal(rng);
    Normalize(direction, 2);
  }
};

template <typename Entry>
inline constexpr Entry kPointMassTasks[] = {
    {"PointMassEasy-v1", 0, 2'500, Make<Entry, PointMass, false>},
    {"PointMassHard-v1", 0, 2'500, Make<Entry, PointMass, true>},
};

}  // namespace rollouts::dmc
