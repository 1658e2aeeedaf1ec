// SPDX-License-Identifier: Apache-2.0
// dm_control's ball in cup: a cup catches a ball that hangs from it on a string.
#pragma once

#include <cmath>

#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/dm_control/randomizers.h"

namespace rollouts::dmc {

class BallInCup final : public Task {
 public:
  explicit BallInCup(Physics& physics)
      : Task(physics),
        ball_x_(PositionOf("ball_x")),
        ball_z_(PositionOf("ball_z")),
        ball_(BodyPosition("ball")),
        target_(SitePosition("target")),
        target_site_(Id(ModelObject::kSite, "target")),
        ball_geom_(Id(ModelObject::kGeom, "ball")) {}

  void DrawStart(Rng& rng) override {
    DrawApart(physics_, [&] {
      physics_.start().qpos[ball_x_] = rng.Uniform(-0.2, 0.2);
      physics_.start().qpos[ball_z_] = rng.Uniform(0.2, 0.5);
    });
  }

  double Reward() const override {
    const auto inside = [&](std::int32_t axis) {
      return std::abs(target_[axis] - ball_[axis]) <
             model_.site_size[3 * target_site_ + axis] - model_.geom_size[3 * ball_geom_];
    };
    return inside(0) && inside(2);
  }

  void Observe(Observation& obs) const override {
    obs.Vector("position", data_.qpos, model_.nq);
    obs.Vector("velocity", data_.qvel, model_.nv);
  }

 private:
  const std::int32_t ball_x_;
  const std::int32_t ball_z_;
  const double* const ball_;
  const double* const target_;
  const std::int32_t target_site_;
  const std::int32_t ball_geom_;
};

inline constexpr TaskEntry kBallInCupTasks[] = {
    {"BallInCupCatch-v1", 0.02, 5'000, Make<BallInCup>}};

}  // namespace rollouts::dmc
