// SPDX-License-Identifier: Apache-2.0
// dm_control's pendulum: too weak a motor swings a pole up and balances it.
#pragma once

#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

struct Pendulum : SuiteTask {
  static constexpr DataArrays kReads = kXmat;
  std::int32_t pole;
  std::int32_t hinge_position;
  std::int32_t hinge_velocity;

  explicit Pendulum(const auto& model)
      : pole(model.Body("pole")),
        hinge_position(model.Position("hinge")),
        hinge_velocity(model.Velocity("hinge")) {}

  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const {
    start.qpos[hinge_position] = rng.Uniform(-kPi, kPi);
  }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    const double cosine = LibraryCos(8 * (kPi / 180));  // 8 degrees
    return Tolerance(sim.data.xmat[9 * pole + 8], {cosine, 1});
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    obs.Begin("orientation");
    obs.Put(sim.data.xmat[9 * pole + 8]);
    obs.Put(sim.data.xmat[9 * pole + 2]);
    obs.Vector("velocity", sim.data.qvel + hinge_velocity, 1);
  }
};

template <typename Entry>
inline constexpr Entry kPendulumTasks[] = {
    {"PendulumSwingup-v1", 0, 3'000, Make<Entry, Pendulum>}};

}  // namespace rollouts::dmc
