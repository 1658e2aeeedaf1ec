// SPDX-License-Identifier: Apache-2.0
// Swing-up of a torque-limited pendulum, as Gymnasium's Pendulum-v1
// (gymnasium/envs/classic_control/pendulum.py).
#pragma once

#include "rollouts/core/env.h"

namespace rollouts {

struct Pendulum {
  struct Config {
    double gravity = 10.0;  // m/s^2; Gymnasium's option `g`
    double mass = 1.0;      // kg; of the pendulum
    double length = 1.0;    // m; of the pendulum
  };
  struct State {
    Real theta, theta_dot;
  };
  using Action = float;
  using Obs = float;

  static constexpr double kMaxSpeed = 8.0;   // rad/s
  static constexpr double kMaxTorque = 2.0;  // N m
  static constexpr double kDt = 0.05;        // s

  static constexpr bool kVectorized = true;
  static constexpr const char* kStateNames[] = {"theta", "theta_dot"};
  static constexpr EnvSpec kSpec = {
      .observation = {.dtype = DType::kFloat32,
                      .ndim = 1,
                      .shape = {3},
                      .elementwise = true,
                      .low = {-1, -1, -kMaxSpeed},
                      .high = {1, 1, kMaxSpeed}},
      .action = {.dtype = DType::kFloat32,
                 .ndim = 1,
                 .shape = {1},
                 .low = {-kMaxTorque},
                 .high = {kMaxTorque}},
      .step_cost_ns = 10};

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("gravity", config.gravity);
    visit("mass", config.mass);
    visit("length", config.length);
  }

  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Finite("gravity", config.gravity);
    check.Positive("mass", config.mass);
    check.Positive("length", config.length);
  }

  ROLLOUTS_HD static void Reset(const Config&, State& state, Rng& rng) {
    state.theta = static_cast<Real>(rng.Uniform(-kPi, kPi));
    state.theta_dot = static_cast<Real>(rng.Uniform(-1.0, 1.0));
  }

  ROLLOUTS_HD static StepResult Step(const Config& config, State& state, const Action* action,
                                     Rng&) {
    // NumPy computes in float32 where only the action and constants are involved
    const float torque = Clip(*action, static_cast<float>(-kMaxTorque),
                              static_cast<float>(kMaxTorque));
    const float torque_cost = 0.001f * (torque * torque);
    const float torque_acc =
        static_cast<float>(3.0 / (config.mass * (config.length * config.length))) * torque;

    const Real angle = WrapAngle(state.theta);
    const Real cost = angle * angle + Real(0.1) * (state.theta_dot * state.theta_dot) +
                      static_cast<Real>(torque_cost);

    const Real gravity_acc =
        static_cast<Real>(3 * config.gravity / (2 * config.length)) * Sin(state.theta);
    const Real speed = state.theta_dot +
                       (gravity_acc + static_cast<Real>(torque_acc)) * static_cast<Real>(kDt);
    state.theta_dot =
        Clip(speed, static_cast<Real>(-kMaxSpeed), static_cast<Real>(kMaxSpeed));
    state.theta += state.theta_dot * static_cast<Real>(kDt);
    return StepResult::Of(-static_cast<double>(cost), false);
  }

  ROLLOUTS_HD static void Observe(const Config&, const State& state, Obs* obs) {
    obs[0] = static_cast<float>(Cos(state.theta));
    obs[1] = static_cast<float>(Sin(state.theta));
    obs[2] = static_cast<float>(state.theta_dot);
  }
};

}  // namespace rollouts
