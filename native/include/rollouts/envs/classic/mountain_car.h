// SPDX-License-Identifier: Apache-2.0
// A car too weak for its hill (Moore 1990), as Gymnasium's MountainCar-v0
// (gymnasium/envs/classic_control/mountain_car.py).
#pragma once

#include "rollouts/core/env.h"

namespace rollouts {

struct MountainCar {
  struct Config {
    double goal_velocity = 0.0;  // position units per step; least speed at the goal
  };
  struct State {
    Real position, velocity;
  };
  using Action = std::int32_t;
  using Obs = float;

  // lengths in the reference's position units, times in steps
  static constexpr double kMinPosition = -1.2;
  static constexpr double kMaxPosition = 0.6;
  static constexpr double kMaxSpeed = 0.07;
  static constexpr double kGoalPosition = 0.5;
  static constexpr double kForce = 0.001;
  static constexpr double kGravity = 0.0025;

  static constexpr bool kVectorized = true;
  static constexpr const char* kStateNames[] = {"position", "velocity"};
  static constexpr EnvSpec kSpec = {
      .observation = {.dtype = DType::kFloat32,
                      .ndim = 1,
                      .shape = {2},
                      .elementwise = true,
                      .low = {kMinPosition, -kMaxSpeed},
                      .high = {kMaxPosition, kMaxSpeed}},
      .action = {.dtype = DType::kInt64, .n = 3},
      .step_cost_ns = 9};

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("goal_velocity", config.goal_velocity);
  }

  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Finite("goal_velocity", config.goal_velocity);
  }

  ROLLOUTS_HD static void Reset(const Config&, State& state, Rng& rng) {
    state.position = static_cast<Real>(rng.Uniform(-0.6, -0.4));
    state.velocity = 0;
  }

  ROLLOUTS_HD static StepResult Step(const Config& config, State& state, const Action* action,
                                     Rng&) {
    const Real max_speed = static_cast<Real>(kMaxSpeed);
    const Real min_position = static_cast<Real>(kMinPosition);
    const Real push = static_cast<Real>(*action - 1) * static_cast<Real>(kForce);
    const Real slope = Cos(3 * state.position) * static_cast<Real>(-kGravity);
    const Real velocity = Clip(state.velocity + (push + slope), -max_speed, max_speed);
    const Real position =
        Clip(state.position + velocity, min_position, static_cast<Real>(kMaxPosition));

    // the left wall is inelastic
    const bool stopped = position == min_position && velocity < 0;
    state.position = position;
    state.velocity = stopped ? Real(0) : velocity;
    const bool terminated = state.position >= static_cast<Real>(kGoalPosition) &&
                            state.velocity >= static_cast<Real>(config.goal_velocity);
    return StepResult::Of(-1.0, terminated);
  }

  ROLLOUTS_HD static void Observe(const Config&, const State& state, Obs* obs) {
    obs[0] = static_cast<float>(state.position);
    obs[1] = static_cast<float>(state.velocity);
  }
};

}  // namespace rollouts
