// SPDX-License-Identifier: Apache-2.0
// dm_control's lqr: a chain of bodies on springs is brought to rest in its middle. dm_control draws
// the springs when it makes an environment; here they are drawn with every episode, which depends
// on seed, env_id and episode alone.
#pragma once

#include <cmath>
#include <span>

#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts::dmc {

class Lqr final : public Task {
 public:
  explicit Lqr(Physics& physics) : Task(physics), stiffness_(physics.Own("jnt_stiffness")) {}

  void DrawStart(Rng& rng) override {
    for (double& stiffness : stiffness_) stiffness = rng.Uniform(15, 25);
    double* const qpos = physics_.start().qpos;
    for (std::int32_t i = 0; i < model_.nq; ++i) qpos[i] = mujoco::StandardNormal(rng);
    const double norm = mujoco::Norm(qpos, model_.nq);
    for (std::int32_t i = 0; i < model_.nq; ++i) qpos[i] = std::sqrt(2.0) * qpos[i] / norm;
  }

  double Reward() const override {
    constexpr double kControlCost = 0.1;
    const double state_cost = 0.5 * Square(data_.qpos, model_.nq);
    return 1 - (state_cost + 0.5 * Square(data_.ctrl, model_.nu) * kControlCost);
  }

  bool Terminated() const override {
    constexpr double kAtRest = 1e-6;
    return std::sqrt(Square(data_.qpos, model_.nq) + Square(data_.qvel, model_.nv)) < kAtRest;
  }

  void Observe(Observation& obs) const override {
    obs.Vector("position", data_.qpos, model_.nq);
    obs.Vector("velocity", data_.qvel, model_.nv);
  }

 private:
  static double Square(const double* values, std::int32_t count) {
    double sum = 0;
    for (std::int32_t i = 0; i < count; ++i) sum += values[i] * values[i];
    return sum;
  }

  const std::span<double> stiffness_;
};

// Tasks, with a seed for springs that DrawModel draws anew.
inline constexpr TaskEntry kLqrTasks[] = {
    {"LqrLqr21-v1", 0, 3'000, Make<Lqr>,
     ModelAndAssets(R"({"n_bodies": 2, "n_actuators": 1, "random": 0})")},
    {"LqrLqr62-v1", 0, 5'000, Make<Lqr>,
     ModelAndAssets(R"({"n_bodies": 6, "n_actuators": 2, "random": 0})")},
};

}  // namespace rollouts::dmc
