// SPDX-License-Identifier: Apache-2.0
// dm_control's planar walker: two legs in a plane stand, walk or run.
#pragma once

#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

struct Walker : SuiteTask {
  static constexpr DataArrays kReads = kXpos | kXmat | kSensordata;
  double speed;  // m/s; 0: the task is to stand
  std::int32_t torso;
  std::int32_t velocity;

  Walker(const auto& model, double speed)
      : speed(speed), torso(model.Body("torso")), velocity(model.Sensor("torso_subtreelinvel")) {}

  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const { RandomizeJoints(start, rng); }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    constexpr double kStandHeight = 1.2;  // m
    const double standing =
        Tolerance(sim.data.xpos[3 * torso + 2], {kStandHeight, kInf}, kStandHeight / 2);
    const double upright = (1 + static_cast<double>(sim.data.xmat[9 * torso + 8])) / 2;
    const double stand = (3 * standing + upright) / 4;
    if (speed == 0) return stand;
    const double move = Tolerance(sim.data.sensordata[velocity], {speed, kInf}, speed / 2,
                                  Sigmoid::kLinear, 0.5);
    return stand * (5 * move + 1) / 6;
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    obs.Begin("orientations");
    for (std::int32_t body = 1; body < sim.model.nbody; ++body) {
      obs.Put(sim.data.xmat[9 * body]);
      obs.Put(sim.data.xmat[9 * body + 2]);
    }
    obs.Scalar("height", sim.data.xpos[3 * torso + 2]);
    obs.Vector("velocity", sim.data.qvel, sim.model.nv);
  }
};

inline constexpr double kWalkerStep = 0.025;  // s
template <typename Entry>
inline constexpr Entry kWalkerTasks[] = {
    {"WalkerStand-v1", kWalkerStep, 8'000, Make<Entry, Walker, 0>},
    {"WalkerWalk-v1", kWalkerStep, 8'000, Make<Entry, Walker, 1>},
    {"WalkerRun-v1", kWalkerStep, 8'000, Make<Entry, Walker, 8>},
};

}  // namespace rollouts::dmc
