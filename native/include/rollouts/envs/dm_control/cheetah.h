// SPDX-License-Identifier: Apache-2.0
// dm_control's cheetah: two legs in a plane run in the direction of x.
#pragma once

#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

struct Cheetah : SuiteTask {
  static constexpr DataArrays kReads = kSensordata;
  // the cheetah falls to the ground
  static constexpr std::int32_t kSubstepsToRest = 200;
  std::int32_t velocity;

  explicit Cheetah(const auto& model) : velocity(model.Sensor("torso_subtreelinvel")) {}

  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const {
    const auto& model = start.model;
    for (std::int32_t i = 0; i < model.njnt; ++i) {
      if (!start.JointLimited(i)) continue;
      start.qpos[i] = rng.Uniform(model.jnt_range[2 * i], model.jnt_range[2 * i + 1]);
    }
  }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    constexpr double kRunSpeed = 10;  // m/s
    return Tolerance(sim.data.sensordata[velocity], {kRunSpeed, kInf}, kRunSpeed, Sigmoid::kLinear, 0);
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    obs.Vector("position", sim.data.qpos + 1, sim.model.nq - 1);
    obs.Vector("velocity", sim.data.qvel, sim.model.nv);
  }
};

template <typename Entry>
inline constexpr Entry kCheetahTasks[] = {{"CheetahRun-v1", 0.01, 8'000, Make<Entry, Cheetah>}};

}  // namespace rollouts::dmc
