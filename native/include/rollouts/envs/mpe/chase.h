// SPDX-License-Identifier: Apache-2.0
// The common parts of those MPE scenarios in which adversaries chase good agents around obstacles.
#pragma once

#include "rollouts/envs/mpe/particles.h"

namespace rollouts {

// An agent's body, in mpe2's units. An Env has `static Body BodyOf(const Config&, int agent)`; its
// adversaries (config.num_adversaries) come before the good agents.
struct ChaseBody {
  double size;
  double acceleration;
  double max_speed;
};

template <typename Env>
struct Chase {
  using Ref = WorldRef<Env>;
  static constexpr double kObstacleSize = 0.2;

  // The force on an agent: its push, and the contacts with all agents and obstacles.
  ROLLOUTS_HD static Vec2 ForceOn(const Ref& w, std::int32_t i, Vec2 push, const Vec2* obstacles) {
    const Vec2* const position = w.agents.position;
    const ChaseBody body = Env::BodyOf(w.config, i);
    Vec2 force = Particles::AddContacts(
        push * body.acceleration, position, w.num_agents, i,
        [&](std::int32_t other) { return body.size + Env::BodyOf(w.config, other).size; });
    const double touching = body.size + kObstacleSize;
    for (std::int32_t k = 0; k < w.config.num_obstacles; ++k) {
      force = Particles::ContactForce(position[i], obstacles[k], touching) + force;
    }
    return force;
  }

  // The number of adversaries that have caught a good agent.
  ROLLOUTS_HD static std::int32_t NumCatchers(const Ref& w, std::int32_t good) {
    const double size = Env::BodyOf(w.config, good).size;
    std::int32_t caught = 0;
    for (std::int32_t i = 0; i < w.config.num_adversaries; ++i) {
      caught += Particles::Collide(w.agents.position[i], w.agents.position[good],
                                   Env::BodyOf(w.config, i).size + size);
    }
    return caught;
  }

  // The penalty of a good agent that leaves the screen, per coordinate.
  ROLLOUTS_HD static double OutsideCost(double coordinate) {
    const double x = coordinate < 0 ? -coordinate : coordinate;
    if (x < 0.9) return 0;
    if (x < 1.0) return (x - 0.9) * 10;
    const double cost = Exp(2 * x - 2);
    return cost < 10 ? cost : 10;
  }
};

}  // namespace rollouts
