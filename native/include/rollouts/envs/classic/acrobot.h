// SPDX-License-Identifier: Apache-2.0
// Swing-up of a two-link pendulum driven at its middle joint (Sutton, "Generalization in
// reinforcement learning", NIPS 1995), as Gymnasium's Acrobot-v1
// (gymnasium/envs/classic_control/acrobot.py).
#pragma once

#include "rollouts/core/env.h"

namespace rollouts {

struct Acrobot {
  struct Config {
    // the paper's equations, which lack a term; Gymnasium's attribute book_or_nips == "nips"
    bool nips = false;
  };
  // Angles (of link 1 from hanging down, of link 2 relative to link 1) and their speeds.
  struct State {
    Real theta1, theta2, speed1, speed2;
  };
  using Action = std::int32_t;
  using Obs = float;

  static constexpr double kDt = 0.2;             // s; one Runge-Kutta step
  static constexpr double kGravity = 9.8;        // m/s^2
  static constexpr double kMass = 1.0;           // kg; of each link
  static constexpr double kLength = 1.0;         // m; of link 1
  static constexpr double kCentre = 0.5;         // m; from a link's joint to its centre of mass
  static constexpr double kInertia = 1.0;        // kg m^2; of each link
  static constexpr double kMaxSpeed1 = 4 * kPi;  // rad/s
  static constexpr double kMaxSpeed2 = 9 * kPi;  // rad/s

  static constexpr bool kVectorized = true;
  static constexpr const char* kStateNames[] = {"theta1", "theta2", "speed1", "speed2"};
  static constexpr EnvSpec kSpec = {
      .observation = {.dtype = DType::kFloat32,
                      .ndim = 1,
                      .shape = {6},
                      .elementwise = true,
                      .low = {-1, -1, -1, -1, -kMaxSpeed1, -kMaxSpeed2},
                      .high = {1, 1, 1, 1, kMaxSpeed1, kMaxSpeed2}},
      .action = {.dtype = DType::kInt64, .n = 3},
      .step_cost_ns = 40};

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("nips", config.nips);
  }

  ROLLOUTS_HD static void Reset(const Config&, State& state, Rng& rng) {
    // the reference rounds its first state to float32
    state.theta1 = static_cast<float>(rng.Uniform(-0.1, 0.1));
    state.theta2 = static_cast<float>(rng.Uniform(-0.1, 0.1));
    state.speed1 = static_cast<float>(rng.Uniform(-0.1, 0.1));
    state.speed2 = static_cast<float>(rng.Uniform(-0.1, 0.1));
  }

  ROLLOUTS_HD static StepResult Step(const Config& config, State& state, const Action* action,
                                     Rng&) {
    const Real torque = static_cast<Real>(*action - 1);  // N m

    // classical Runge-Kutta
    const Real dt = static_cast<Real>(kDt);
    const State k1 = Rate(config, state, torque);
    const State k2 = Rate(config, Moved(state, dt / 2, k1), torque);
    const State k3 = Rate(config, Moved(state, dt / 2, k2), torque);
    const State k4 = Rate(config, Moved(state, dt, k3), torque);
    const State total = {k1.theta1 + 2 * k2.theta1 + 2 * k3.theta1 + k4.theta1,
                         k1.theta2 + 2 * k2.theta2 + 2 * k3.theta2 + k4.theta2,
                         k1.speed1 + 2 * k2.speed1 + 2 * k3.speed1 + k4.speed1,
                         k1.speed2 + 2 * k2.speed2 + 2 * k3.speed2 + k4.speed2};
    const State next = Moved(state, dt / 6, total);

    const Real max_speed1 = static_cast<Real>(kMaxSpeed1);
    const Real max_speed2 = static_cast<Real>(kMaxSpeed2);
    state.theta1 = Wrapped(next.theta1);
    state.theta2 = Wrapped(next.theta2);
    state.speed1 = Clip(next.speed1, -max_speed1, max_speed1);
    state.speed2 = Clip(next.speed2, -max_speed2, max_speed2);

    // the free end is one link's length above the fixed joint
    const bool terminated = -Cos(state.theta1) - Cos(state.theta2 + state.theta1) > Real(1);
    return StepResult::Of(terminated ? 0.0 : -1.0, terminated);
  }

  ROLLOUTS_HD static void Observe(const Config&, const State& state, Obs* obs) {
    obs[0] = static_cast<float>(Cos(state.theta1));
    obs[1] = static_cast<float>(Sin(state.theta1));
    obs[2] = static_cast<float>(Cos(state.theta2));
    obs[3] = static_cast<float>(Sin(state.theta2));
    obs[4] = static_cast<float>(state.speed1);
    obs[5] = static_cast<float>(state.speed2);
  }

 private:
  // Time derivative of the state, in the reference's order of operations.
  ROLLOUTS_HD static State Rate(const Config& config, const State& s, Real torque) {
    const Real half_pi = static_cast<Real>(kPi / 2);
    const Real gravity = static_cast<Real>(kGravity);
    const Real centre2 = static_cast<Real>(kCentre * kCentre);
    const Real mass = static_cast<Real>(kMass);
    const Real length = static_cast<Real>(kLength);
    const Real centre = static_cast<Real>(kCentre);
    const Real inertia = static_cast<Real>(kInertia);
    const Real cos2 = Cos(s.theta2);
    const Real sin2 = Sin(s.theta2);

    const Real d1 = mass * centre2 +
                    mass * (length * length + centre2 + 2 * length * centre * cos2) + inertia +
                    inertia;
    const Real d2 = mass * (centre2 + length * centre * cos2) + inertia;
    const Real phi2 = mass * centre * gravity * Cos(s.theta1 + s.theta2 - half_pi);
    const Real phi1 = -mass * length * centre * (s.speed2 * s.speed2) * sin2 -
                      2 * mass * length * centre * s.speed2 * s.speed1 * sin2 +
                      (mass * centre + mass * length) * gravity * Cos(s.theta1 - half_pi) + phi2;
    // the term that the paper's equations lack
    const Real book = mass * length * centre * (s.speed1 * s.speed1) * sin2;
    const Real has_book = config.nips ? Real(0) : Real(1);  // a factor: a branch stops the vectoriser
    const Real push = torque + d2 / d1 * phi1;
    const Real acc2 = (push - has_book * book - phi2) /
                      (mass * centre2 + inertia - d2 * d2 / d1);
    const Real acc1 = -(d2 * acc2 + phi1) / d1;
    return {s.speed1, s.speed2, acc1, acc2};
  }

  ROLLOUTS_HD static State Moved(const State& s, Real dt, const State& rate) {
    return {s.theta1 + dt * rate.theta1, s.theta2 + dt * rate.theta2, s.speed1 + dt * rate.speed1,
            s.speed2 + dt * rate.speed2};
  }

  // The angle in [-pi, pi]. core/math.h has WrapAngle, whose last bit differs from the
  // reference's repeated subtraction; a chaotic system makes that a different episode.
  ROLLOUTS_HD static Real Wrapped(Real angle) {
    const Real pi = static_cast<Real>(kPi);
    const Real turn = 2 * pi;
    const Real above = -Floor((pi - angle) / turn);
    const Real below = Floor((pi + angle) / turn);
    return angle - turn * ((above > 0 ? above : 0) + (below < 0 ? below : 0));
  }
};

}  // namespace rollouts
