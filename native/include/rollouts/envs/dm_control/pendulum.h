// SPDX-License-Identifier: Apache-2.0
// dm_control's pendulum: too weak a motor swings a pole up and balances it.
#pragma once

#include <cmath>

#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/dm_control/rewards.h"

namespace rollouts::dmc {

class Pendulum final : public Task {
 public:
  explicit Pendulum(Physics& physics)
      : Task(physics),
        pole_(BodyRotation("pole")),
        hinge_position_(PositionOf("hinge")),
        hinge_velocity_(VelocityOf("hinge")) {}

  DataArrays Reads() const override { return kXmat; }
  void DrawStart(Rng& rng) override {
    physics_.start().qpos[hinge_position_] = rng.Uniform(-kPi, kPi);
  }

  double Reward() const override {
    static const double kCosine = std::cos(8 * (kPi / 180));  // 8 degrees
    return Tolerance(pole_[8], {kCosine, 1});
  }

  void Observe(Observation& obs) const override {
    obs.Begin("orientation");
    obs.Put(pole_[8]);
    obs.Put(pole_[2]);
    obs.Vector("velocity", data_.qvel + hinge_velocity_, 1);
  }

 private:
  const double* const pole_;
  const std::int32_t hinge_position_;
  const std::int32_t hinge_velocity_;
};

inline constexpr TaskEntry kPendulumTasks[] = {{"PendulumSwingup-v1", 0, 3'000, Make<Pendulum>}};

}  // namespace rollouts::dmc
