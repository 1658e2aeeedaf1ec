// SPDX-License-Identifier: Apache-2.0
// Cart-pole balancing (Barto, Sutton and Anderson 1983), as Gymnasium's
// CartPole-v0/v1 (gymnasium/envs/classic_control/cartpole.py).
#pragma once

#include "rollouts/core/env.h"

namespace rollouts {

struct CartPole {
  struct Config {
    double gravity = 9.8;         // m/s^2; downwards
    double mass_cart = 1.0;       // kg; of the cart
    double mass_pole = 0.1;       // kg; of the pole
    double pole_half_length = 0.5;  // m; from the joint to the pole's centre
    double force_mag = 10.0;      // N; how hard an action pushes the cart
    bool sutton_barto_reward = false;  // 0 per step and -1 at the end, in place of 1 per step
  };
  struct State {
    Real x, x_dot, theta, theta_dot;
  };
  using Action = std::int32_t;
  using Obs = float;

  static constexpr double kTau = 0.02;                              // s; step of the integrator
  static constexpr double kXThreshold = 2.4;                        // m
  static constexpr double kThetaThreshold = 12 * 2 * kPi / 360;     // rad

  static constexpr bool kVectorized = true;
  static constexpr const char* kStateNames[] = {"x", "x_dot", "theta", "theta_dot"};
  static constexpr EnvSpec kSpec = {
      .observation = {.dtype = DType::kFloat32,
                      .ndim = 1,
                      .shape = {4},
                      .elementwise = true,
                      .low = {-2 * kXThreshold, -kInfinity, -2 * kThetaThreshold, -kInfinity},
                      .high = {2 * kXThreshold, kInfinity, 2 * kThetaThreshold, kInfinity}},
      .action = {.dtype = DType::kInt64, .n = 2},
      .step_cost_ns = 12};

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("gravity", config.gravity);
    visit("mass_cart", config.mass_cart);
    visit("mass_pole", config.mass_pole);
    visit("pole_half_length", config.pole_half_length);
    visit("force_mag", config.force_mag);
    visit("sutton_barto_reward", config.sutton_barto_reward);
  }

  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Finite("gravity", config.gravity);
    check.Positive("mass_cart", config.mass_cart);
    check.Positive("mass_pole", config.mass_pole);
    check.Positive("pole_half_length", config.pole_half_length);
    check.Finite("force_mag", config.force_mag);
  }

  ROLLOUTS_HD static void Reset(const Config&, State& state, Rng& rng) {
    state.x = static_cast<Real>(rng.Uniform(-0.05, 0.05));
    state.x_dot = static_cast<Real>(rng.Uniform(-0.05, 0.05));
    state.theta = static_cast<Real>(rng.Uniform(-0.05, 0.05));
    state.theta_dot = static_cast<Real>(rng.Uniform(-0.05, 0.05));
  }

  ROLLOUTS_HD static StepResult Step(const Config& config, State& state, const Action* action,
                                     Rng&) {
    const Real total_mass = static_cast<Real>(config.mass_cart + config.mass_pole);
    const Real mass_pole = static_cast<Real>(config.mass_pole);
    const Real length = static_cast<Real>(config.pole_half_length);
    const Real pole_mass_length = mass_pole * length;
    const Real force = static_cast<Real>(*action == 1 ? config.force_mag : -config.force_mag);
    const Real cos_theta = Cos(state.theta);
    const Real sin_theta = Sin(state.theta);

    // equations of motion, in the reference's order of operations
    const Real temp =
        (force + pole_mass_length * (state.theta_dot * state.theta_dot) * sin_theta) / total_mass;
    const Real theta_acc =
        (static_cast<Real>(config.gravity) * sin_theta - cos_theta * temp) /
        (length * (Real(4) / Real(3) - mass_pole * (cos_theta * cos_theta) / total_mass));
    const Real x_acc = temp - pole_mass_length * theta_acc * cos_theta / total_mass;

    // explicit Euler
    const Real tau = static_cast<Real>(kTau);
    state.x += tau * state.x_dot;
    state.x_dot += tau * x_acc;
    state.theta += tau * state.theta_dot;
    state.theta_dot += tau * theta_acc;

    const bool inside = state.x >= static_cast<Real>(-kXThreshold) &&
                        state.x <= static_cast<Real>(kXThreshold) &&
                        state.theta >= static_cast<Real>(-kThetaThreshold) &&
                        state.theta <= static_cast<Real>(kThetaThreshold);
    const double reward = config.sutton_barto_reward ? (inside ? 0.0 : -1.0) : 1.0;
    return StepResult::Of(reward, !inside);
  }

  ROLLOUTS_HD static void Observe(const Config&, const State& state, Obs* obs) {
    obs[0] = static_cast<float>(state.x);
    obs[1] = static_cast<float>(state.x_dot);
    obs[2] = static_cast<float>(state.theta);
    obs[3] = static_cast<float>(state.theta_dot);
  }
};

}  // namespace rollouts
