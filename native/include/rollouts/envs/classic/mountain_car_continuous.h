// SPDX-License-Identifier: Apache-2.0
// Mountain car with a continuous force, as Gymnasium's MountainCarContinuous-v0
// (gymnasium/envs/classic_control/continuous_mountain_car.py).
#pragma once

#include "rollouts/core/env.h"

namespace rollouts {

struct MountainCarContinuous {
  struct Config {
    double goal_velocity = 0.0;  // position units per step; least speed at the goal
  };
  // The values are float32, as in the reference (except its first position, which is float64 but is
  // never observed).
  struct State {
    Real position, velocity;
  };
  using Action = float;
  using Obs = float;

  // lengths in the reference's position units, times in steps
  static constexpr double kMinPosition = -1.2;
  static constexpr double kMaxPosition = 0.6;
  static constexpr double kMaxSpeed = 0.07;
  static constexpr double kGoalPosition = 0.45;
  static constexpr double kPower = 0.0015;  // acceleration per unit of force
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
      .action = {.dtype = DType::kFloat32, .ndim = 1, .shape = {1}, .low = {-1}, .high = {1}},
      .step_cost_ns = 12};

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("goal_velocity", config.goal_velocity);
  }

  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Finite("goal_velocity", config.goal_velocity);
  }

  ROLLOUTS_HD static void Reset(const Config&, State& state, Rng& rng) {
    state.position = static_cast<float>(rng.Uniform(-0.6, -0.4));
    state.velocity = 0;
  }

  ROLLOUTS_HD static StepResult Step(const Config& config, State& state, const Action* action,
                                     Rng&) {
    const float max_speed = static_cast<float>(kMaxSpeed);
    const float min_position = static_cast<float>(kMinPosition);
    const float last_position = static_cast<float>(state.position);
    const float last_velocity = static_cast<float>(state.velocity);
    const Real slope =
        static_cast<Real>(kGravity) * Cos(static_cast<Real>(3.0f * last_position));

    // NumPy computes in float32 with the float32 action. An action that was clipped is a Python
    // float; then the acceleration is rounded to float32 once, at the end
    const Real power = static_cast<Real>(kPower);
    const float inside = *action * static_cast<float>(kPower) - static_cast<float>(slope);
    const float beyond = static_cast<float>((*action < 0 ? -power : power) - slope);
    // `|` and `&`, because a branch would prevent the vectorisation
    const bool clipped = (*action < -1.0f) | (*action > 1.0f);
    const float acceleration = clipped ? beyond : inside;

    const float velocity = Clip(last_velocity + acceleration, -max_speed, max_speed);
    const float position =
        Clip(last_position + velocity, min_position, static_cast<float>(kMaxPosition));
    // the left wall is inelastic
    const bool stopped = (position == min_position) & (velocity < 0);
    const float kept_velocity = stopped ? 0.0f : velocity;
    state.position = position;
    state.velocity = kept_velocity;
    const bool terminated = (position >= static_cast<float>(kGoalPosition)) &
                            (kept_velocity >= static_cast<float>(config.goal_velocity));

    // the cost depends on the action before it is clipped
    const double cost = static_cast<double>(*action) * static_cast<double>(*action) * 0.1;
    return StepResult::Of((terminated ? 100.0 : 0.0) - cost, terminated);
  }

  ROLLOUTS_HD static void Observe(const Config&, const State& state, Obs* obs) {
    obs[0] = static_cast<float>(state.position);
    obs[1] = static_cast<float>(state.velocity);
  }
};

}  // namespace rollouts
