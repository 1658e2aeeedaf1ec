// SPDX-License-Identifier: Apache-2.0
// dm_control's hopper: one leg in a plane stands or hops.
#pragma once

#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

struct Hopper : SuiteTask {
  static constexpr DataArrays kReads = kXipos | kSensordata;
  bool hopping;
  std::int32_t torso;
  std::int32_t foot;
  std::int32_t velocity;
  std::int32_t touch[2];

  Hopper(const auto& model, bool hopping)
      : hopping(hopping),
        torso(model.Body("torso")),
        foot(model.Body("foot")),
        velocity(model.Sensor("torso_subtreelinvel")),
        touch{model.Sensor("touch_toe"), model.Sensor("touch_heel")} {}

  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const { RandomizeJoints(start, rng); }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    constexpr double kStandHeight = 0.6;  // m
    constexpr double kHopSpeed = 2;       // m/s
    const auto* const xipos = sim.data.xipos;
    const double standing =
        Tolerance(xipos[3 * torso + 2] - xipos[3 * foot + 2], {kStandHeight, 2});
    if (hopping) {
      return standing * Tolerance(sim.data.sensordata[velocity], {kHopSpeed, kInf}, kHopSpeed / 2,
                                  Sigmoid::kLinear, 0.5);
    }
    return standing * ((SmallControl(sim.data.ctrl, sim.model.nu) + 4) / 5);
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    obs.Vector("position", sim.data.qpos + 1, sim.model.nq - 1);
    obs.Vector("velocity", sim.data.qvel, sim.model.nv);
    obs.Begin("touch");
    for (const std::int32_t at : touch) obs.Put(Log1p(sim.data.sensordata[at]));
  }
};

template <typename Entry>
inline constexpr Entry kHopperTasks[] = {
    {"HopperHop-v1", 0.02, 8'000, Make<Entry, Hopper, true>},
    {"HopperStand-v1", 0.02, 8'000, Make<Entry, Hopper, false>},
};

}  // namespace rollouts::dmc
