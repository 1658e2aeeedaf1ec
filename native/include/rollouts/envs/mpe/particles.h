// SPDX-License-Identifier: Apache-2.0
// Discs on a plane that push each other away: the physics common to the scenarios of MPE (Lowe et
// al., "Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments", NeurIPS 2017), as
// Farama's mpe2 1.1 computes it: in double, with sums in its order.
//
// mpe2 loops over pairs and adds a force to both agents. Here each agent adds up its own forces, in
// the order of the other agents, which gives the same sum.
#pragma once

#include "rollouts/core/multi_agent.h"

namespace rollouts {

struct Vec2 {
  double x = 0;
  double y = 0;
};
ROLLOUTS_HD constexpr Vec2 operator-(Vec2 a, Vec2 b) { return {a.x - b.x, a.y - b.y}; }
ROLLOUTS_HD constexpr Vec2 operator+(Vec2 a, Vec2 b) { return {a.x + b.x, a.y + b.y}; }
ROLLOUTS_HD constexpr Vec2 operator*(Vec2 a, double b) { return {a.x * b, a.y * b}; }
ROLLOUTS_HD constexpr double SquaredLength(Vec2 v) { return v.x * v.x + v.y * v.y; }
ROLLOUTS_HD inline double Length(Vec2 v) { return Sqrt(SquaredLength(v)); }

// Arrays of agents that move.
struct ParticleAgents {
  Vec2* position;
  Vec2* velocity;
  Vec2* force;  // in this step

  template <typename Visitor>
  static void Visit(ParticleAgents& agents, Visitor& visit) {
    visit("position", agents.position);
    visit("velocity", agents.velocity);
    visit("force", agents.force);
  }
};

struct Particles {
  static constexpr double kDt = 0.1;             // s
  static constexpr double kDamping = 0.25;       // share of the velocity, per step
  static constexpr double kContactForce = 100;   // per unit of penetration
  static constexpr double kContactMargin = 1e-3;  // softness of the discs
  static constexpr double kAcceleration = 5;     // for agents without one of their own
  // beyond these margins between two discs mpe2's force is below 1e-18
  static constexpr double kReach = 40 * kContactMargin;
  static constexpr std::int32_t kMoves = 5;  // stay, left, right, down, up

  // NumPy's logaddexp(0, x).
  ROLLOUTS_HD static double SoftPlus(double x) {
    return x < 0 ? Log1p(Exp(x)) : x + Log1p(Exp(-x));
  }

  // Force on a disc at `at` from one at `other`, whose edges touch at distance `touching`.
  ROLLOUTS_HD static Vec2 ContactForce(Vec2 at, Vec2 other, double touching) {
    const Vec2 delta = at - other;
    const double squared = SquaredLength(delta);
    const double far = touching + kReach;
    if (squared > far * far) return {};
    const double distance = Sqrt(squared);
    const double penetration = SoftPlus(-(distance - touching) / kContactMargin) * kContactMargin;
    return {kContactForce * delta.x / distance * penetration,
            kContactForce * delta.y / distance * penetration};
  }

  ROLLOUTS_HD static bool Collide(Vec2 a, Vec2 b, double touching) {
    return Length(a - b) < touching;
  }

  // Distance to the nearest of some positions.
  ROLLOUTS_HD static double NearestDistance(Vec2 from, const Vec2* positions, std::int32_t count) {
    double least = kInfinity;
    for (std::int32_t k = 0; k < count; ++k) {
      const double distance = SquaredLength(positions[k] - from);
      least = distance < least ? distance : least;
    }
    return Sqrt(least);
  }

  // The push of a move of a Discrete space.
  ROLLOUTS_HD static Vec2 PushOf(std::int32_t move) {
    return {static_cast<double>((move == 2) - (move == 1)),
            static_cast<double>((move == 4) - (move == 3))};
  }
  // The same for a Box, whose elements push in the directions of the moves; in 32 bits, as in mpe2.
  ROLLOUTS_HD static Vec2 PushOf(const float* move) {
    return {Clip(move[2], 0.0f, 1.0f) - Clip(move[1], 0.0f, 1.0f),
            Clip(move[4], 0.0f, 1.0f) - Clip(move[3], 0.0f, 1.0f)};
  }
  // The push of an agent in a world where agents only move.
  template <typename Ref>
  ROLLOUTS_HD static Vec2 PushOf(const Ref& w, std::int32_t agent) {
    return w.config.continuous_actions ? PushOf(w.actions.template Of<float>(0) + kMoves * agent)
                                       : PushOf(w.actions.template Of<std::int32_t>(0)[agent]);
  }

  // Adds the forces of all agents but `i`, whose edges touch its own at `touching(other)`.
  template <typename Touching>
  ROLLOUTS_HD static Vec2 AddContacts(Vec2 force, const Vec2* position, std::int32_t num_agents,
                                      std::int32_t i, Touching&& touching) {
    for (std::int32_t other = 0; other < num_agents; ++other) {
      if (other == i) continue;
      force = ContactForce(position[i], position[other], touching(other)) + force;
    }
    return force;
  }

  // Moves one agent by its force. `max_speed` 0: no limit.
  ROLLOUTS_HD static void Move(const ParticleAgents& agents, std::int32_t i, Vec2 force,
                               double max_speed = 0) {
    Vec2 velocity = agents.velocity[i];
    agents.position[i] = agents.position[i] + velocity * kDt;
    velocity = velocity * (1 - kDamping) + force * kDt;
    if (max_speed > 0) {
      const double speed = Length(velocity);
      if (speed > max_speed) {
        velocity = {velocity.x / speed * max_speed, velocity.y / speed * max_speed};
      }
    }
    agents.velocity[i] = velocity;
  }

  // Uniform in a square around the origin.
  ROLLOUTS_HD static void Draw(Rng& rng, Vec2* positions, std::int32_t count, double half_side) {
    for (std::int32_t i = 0; i < count; ++i) {
      positions[i].x = rng.Uniform(-half_side, half_side);
      positions[i].y = rng.Uniform(-half_side, half_side);
    }
  }

  // True in the step at which the time limit ends the episode: mpe2 then reports no other end.
  template <typename Ref>
  ROLLOUTS_HD static bool AtTimeLimit(const Ref& w) {
    return w.max_episode_steps > 0 && w.elapsed_steps >= w.max_episode_steps;
  }
};

}  // namespace rollouts
