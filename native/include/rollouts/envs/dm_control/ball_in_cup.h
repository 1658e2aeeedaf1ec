// SPDX-License-Identifier: Apache-2.0
// dm_control's ball in cup: a cup catches a ball that hangs from it on a string.
#pragma once

#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

struct BallInCup : SuiteTask {
  static constexpr bool kIsApart = true;
  std::int32_t positions[2];  // x, z
  std::int32_t ball;
  std::int32_t ball_geom;
  std::int32_t target;

  explicit BallInCup(const auto& model)
      : positions{model.Position("ball_x"), model.Position("ball_z")},
        ball(model.Body("ball")),
        ball_geom(model.Geom("ball")),
        target(model.Site("target")) {}

  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const {
    start.qpos[positions[0]] = rng.Uniform(-0.2, 0.2);
    start.qpos[positions[1]] = rng.Uniform(0.2, 0.5);
  }

  ROLLOUTS_HD double Reward(const auto& sim) const { return IsInside(sim, 0) && IsInside(sim, 2); }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    obs.Vector("position", sim.data.qpos, sim.model.nq);
    obs.Vector("velocity", sim.data.qvel, sim.model.nv);
  }

 private:
  ROLLOUTS_HD bool IsInside(const auto& sim, std::int32_t axis) const {
    return Abs(sim.data.site_xpos[3 * target + axis] - sim.data.xpos[3 * ball + axis]) <
           sim.model.site_size[3 * target + axis] - sim.model.geom_size[3 * ball_geom];
  }
};

template <typename Entry>
inline constexpr Entry kBallInCupTasks[] = {
    {"BallInCupCatch-v1", 0.02, 5'000, Make<Entry, BallInCup>}};

}  // namespace rollouts::dmc
