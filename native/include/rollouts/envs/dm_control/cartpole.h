// SPDX-License-Identifier: Apache-2.0
// dm_control's cartpole: a cart balances one or several poles, each on top of the other.
#pragma once

#include <algorithm>

#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts::dmc {

class Cartpole final : public Task {
 public:
  // `swing_up`: the poles hang at the start.
  Cartpole(Physics& physics, bool swing_up, bool sparse)
      : Task(physics), swing_up_(swing_up), sparse_(sparse), slider_(PositionOf("slider")) {}

  DataArrays Reads() const override { return kXmat; }
  void DrawStart(Rng& rng) override {
    const StartView start = physics_.start();
    if (swing_up_) {
      start.qpos[slider_] = 0.01 * mujoco::StandardNormal(rng);
      start.qpos[PositionOf("hinge_1")] = kPi + 0.01 * mujoco::StandardNormal(rng);
      for (std::int32_t i = 2; i < model_.nv; ++i) {
        start.qpos[i] = 0.1 * mujoco::StandardNormal(rng);
      }
    } else {
      start.qpos[slider_] = rng.Uniform(-0.1, 0.1);
      for (std::int32_t i = 1; i < model_.nv; ++i) start.qpos[i] = rng.Uniform(-0.034, 0.034);
    }
    for (std::int32_t i = 0; i < model_.nv; ++i) {
      start.qvel[i] = 0.01 * mujoco::StandardNormal(rng);
    }
  }

  double Reward() const override { return sparse_ ? SparseReward() : SmoothReward(); }

  void Observe(Observation& obs) const override {
    obs.Begin("position");
    obs.Put(data_.qpos[slider_]);
    for (std::int32_t body = kFirstPole; body < model_.nbody; ++body) {
      obs.Put(data_.xmat[9 * body + 8]);
      obs.Put(data_.xmat[9 * body + 2]);
    }
    obs.Vector("velocity", data_.qvel, model_.nv);
  }

 private:
  static constexpr std::int32_t kFirstPole = 2;  // a body, after the world and the cart

  double Cosine(std::int32_t body) const { return data_.xmat[9 * body + 8]; }

  double SparseReward() const {
    double reward = Tolerance(data_.qpos[slider_], {-0.25, 0.25});
    for (std::int32_t body = kFirstPole; body < model_.nbody; ++body) {
      reward *= Tolerance(Cosine(body), {0.995, 1});
    }
    return reward;
  }

  double SmoothReward() const {
    double upright = 0;
    for (std::int32_t body = kFirstPole; body < model_.nbody; ++body) {
      upright += (Cosine(body) + 1) / 2;
    }
    upright /= model_.nbody - kFirstPole;
    const double centered = (1 + Tolerance(data_.qpos[slider_], {}, 2)) / 2;
    const double small_control =
        (4 + Tolerance(data_.ctrl[0], {}, 1, Sigmoid::kQuadratic, 0)) / 5;
    double small_velocity = 1;
    for (std::int32_t i = 1; i < model_.nv; ++i) {
      small_velocity = std::min(small_velocity, Tolerance(data_.qvel[i], {}, 5));
    }
    return upright * small_control * ((1 + small_velocity) / 2) * centered;
  }

  const bool swing_up_;
  const bool sparse_;
  const std::int32_t slider_;
};

inline constexpr TaskEntry kCartpoleTasks[] = {
    {"CartpoleBalance-v1", 0, 4'000, Make<Cartpole, false, false>},
    {"CartpoleBalanceSparse-v1", 0, 4'000, Make<Cartpole, false, true>},
    {"CartpoleSwingup-v1", 0, 4'000, Make<Cartpole, true, false>},
    {"CartpoleSwingupSparse-v1", 0, 4'000, Make<Cartpole, true, true>},
    {"CartpoleTwoPoles-v1", 0, 5'000, Make<Cartpole, true, false>,
     ModelAndAssets(R"({"num_poles": 2})")},
    {"CartpoleThreePoles-v1", 0, 6'000, Make<Cartpole, true, false>,
     ModelAndAssets(R"({"num_poles": 3})")},
};

}  // namespace rollouts::dmc
