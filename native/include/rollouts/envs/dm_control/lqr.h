// SPDX-License-Identifier: Apache-2.0
// dm_control's lqr: a chain of bodies on springs is brought to rest in its middle. dm_control draws
// the springs when it makes an environment; here every episode draws them, so that an episode
// depends only on seed, env_id and its number.
#pragma once

#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

struct Lqr : SuiteTask {
  static constexpr const char* kDraws = "jnt_stiffness";

  explicit Lqr(const auto&) {}

  ROLLOUTS_HD void Begin(auto& start, Rng& rng) const {
    for (std::int32_t i = 0; i < start.model.njnt; ++i) {
      start.Put(DrawnField::kJntStiffness, i, rng.Uniform(15, 25));
    }
  }

  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const {
    const std::int32_t nq = start.model.nq;
    for (std::int32_t i = 0; i < nq; ++i) start.qpos[i] = mujoco::StandardNormal(rng);
    const double norm = mujoco::Norm(start.qpos, nq);
    for (std::int32_t i = 0; i < nq; ++i) start.qpos[i] = Sqrt(2.0) * start.qpos[i] / norm;
  }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    constexpr double kControlCost = 0.1;
    const double state_cost = 0.5 * Square(sim.data.qpos, sim.model.nq);
    return 1 - (state_cost + 0.5 * Square(sim.data.ctrl, sim.model.nu) * kControlCost);
  }

  ROLLOUTS_HD bool Terminated(const auto& sim) const {
    constexpr double kAtRest = 1e-6;
    return Sqrt(Square(sim.data.qpos, sim.model.nq) + Square(sim.data.qvel, sim.model.nv)) < kAtRest;
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    obs.Vector("position", sim.data.qpos, sim.model.nq);
    obs.Vector("velocity", sim.data.qvel, sim.model.nv);
  }

 private:
  template <typename Number>
  ROLLOUTS_HD static double Square(const Number* values, std::int32_t count) {
    double sum = 0;
    for (std::int32_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
    return sum;
  }
};

// Tasks; "random" is dm_control's seed for springs, but Begin draws them anew.
template <typename Entry>
inline constexpr Entry kLqrTasks[] = {
    {"LqrLqr21-v1", 0, 3'000, Make<Entry, Lqr>,
     ModelAndAssets(R"({"n_bodies": 2, "n_actuators": 1, "random": 0})")},
    {"LqrLqr62-v1", 0, 5'000, Make<Entry, Lqr>,
     ModelAndAssets(R"({"n_bodies": 6, "n_actuators": 2, "random": 0})")},
};

}  // namespace rollouts::dmc
