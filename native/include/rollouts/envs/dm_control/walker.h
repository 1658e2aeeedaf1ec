// SPDX-License-Identifier: Apache-2.0
// dm_control's planar walker: two legs in a plane stand, walk or run.
#pragma once

#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"

namespace rollouts::dmc {

class Walker final : public Task {
 public:
  // `speed` in m/s; 0: it is to stand.
  Walker(Physics& physics, int speed)
      : Task(physics),
        speed_(speed),
        torso_position_(BodyPosition("torso")),
        torso_rotation_(BodyRotation("torso")),
        velocity_(Sensor("torso_subtreelinvel")) {}

  DataArrays Reads() const override { return kXpos | kXmat | kSensordata; }
  void DrawStart(Rng& rng) override { RandomizeJoints(physics_, rng); }

  double Reward() const override {
    constexpr double kStandHeight = 1.2;  // m
    const double standing = Tolerance(torso_position_[2], {kStandHeight, kInf}, kStandHeight / 2);
    const double upright = (1 + torso_rotation_[8]) / 2;
    const double stand = (3 * standing + upright) / 4;
    if (speed_ == 0) return stand;
    const double move =
        Tolerance(velocity_[0], {speed_, kInf}, speed_ / 2, Sigmoid::kLinear, 0.5);
    return stand * (5 * move + 1) / 6;
  }

  void Observe(Observation& obs) const override {
    obs.Begin("orientations");
    for (std::int32_t body = 1; body < model_.nbody; ++body) {
      obs.Put(data_.xmat[9 * body]);
      obs.Put(data_.xmat[9 * body + 2]);
    }
    obs.Scalar("height", torso_position_[2]);
    obs.Vector("velocity", data_.qvel, model_.nv);
  }

 private:
  const double speed_;
  const double* const torso_position_;
  const double* const torso_rotation_;
  const double* const velocity_;
};

inline constexpr double kWalkerStep = 0.025;  // s
inline constexpr TaskEntry kWalkerTasks[] = {
    {"WalkerStand-v1", kWalkerStep, 8'000, Make<Walker, 0>},
    {"WalkerWalk-v1", kWalkerStep, 8'000, Make<Walker, 1>},
    {"WalkerRun-v1", kWalkerStep, 8'000, Make<Walker, 8>},
};

}  // namespace rollouts::dmc
