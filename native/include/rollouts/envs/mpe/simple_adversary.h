// SPDX-License-Identifier: Apache-2.0
// Agents go to a goal among landmarks and keep an adversary from guessing which one it is:
// simple_adversary_v3 of mpe2.
#pragma once

#include "rollouts/envs/mpe/neighbors.h"

namespace rollouts {

struct MpeAdversary {
  struct Config {
    std::int32_t N = 2;               // good agents, and as many landmarks; plus one adversary
    bool continuous_actions = false;  // a Box of five pushes, not a Discrete of five moves
    std::int32_t num_agent_neighbors = 0;     // nearest other agents that an agent sees; 0: all of them
    std::int32_t num_landmark_neighbors = 0;  // nearest landmarks that it sees; 0: all of them
  };
  static constexpr std::int32_t kMost = 64;
  struct World {
    Vec2 landmarks[kMost];
    std::int32_t goal;
  };
  using Agents = ParticleAgents;  // the adversary comes first
  using Obs = float;
  using Ref = WorldRef<MpeAdversary>;

  static EnvSpec MakeSpec(const Config& config) {
    const std::int32_t seen = 2 * NumSeen(config.num_landmark_neighbors, config.N) +
                              2 * NumSeen(config.num_agent_neighbors, config.N);
    const SpaceSpec action = ParticleAction(config.continuous_actions, true, 0);
    EnvSpec spec;
    spec.step_cost_ns = EnvSpec::CostNs(40 + 5 * config.N, config.N + 1);
    AddParticles(spec, "adversary", 1, seen, action);
    AddParticles(spec, "agent", config.N, seen + 2, action);
    return spec;
  }

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("N", config.N);
    visit("continuous_actions", config.continuous_actions);
    visit("num_agent_neighbors", config.num_agent_neighbors);
    visit("num_landmark_neighbors", config.num_landmark_neighbors);
  }

  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Between("N", config.N, 1, kMost);
    check.Between("num_agent_neighbors", config.num_agent_neighbors, 0, 1000);
    check.Between("num_landmark_neighbors", config.num_landmark_neighbors, 0, 1000);
  }

  template <typename Visitor>
  static void VisitWorld(World& world, Visitor& visit) {
    visit("landmarks", world.landmarks);
    visit("goal", world.goal);
  }

  template <typename Visitor>
  static void VisitFields(const Config&, Agents& agents, Visitor& visit) {
    Agents::Visit(agents, visit);
  }

  ROLLOUTS_HD static void Reset(const Ref& w, Rng& rng) {
    w.world.goal = static_cast<std::int32_t>(rng.Below(w.config.N));
    Particles::Draw(rng, w.agents.position, w.num_agents, 1);
    Particles::Draw(rng, w.world.landmarks, w.config.N, 1);
  }

  static constexpr int kPhases = 1;

  template <int kPhase>
  ROLLOUTS_HD static void StepAgent(const Ref& w, std::int32_t i) {
    const Vec2 force = Particles::PushOf(w, i) * Particles::kAcceleration;
    Particles::Move(w.agents, i, force);
  }

  ROLLOUTS_HD static bool EndStep(const Ref& w, Rng&) {
    const Vec2 goal = w.world.landmarks[w.world.goal];
    const Vec2* const position = w.agents.position;
    const double adversary = Length(position[0] - goal);
    const double good = adversary - Particles::NearestDistance(goal, position + 1, w.config.N);
    w.status.reward[0] = -adversary;
    for (std::int32_t i = 1; i < w.num_agents; ++i) w.status.reward[i] = good;
    return false;
  }

  ROLLOUTS_HD static const char* CheckWorld(const Ref& w) {
    return IsWithin(w.world.goal, 0, w.config.N - 1) ? nullptr : kNoSuchState;
  }

  ROLLOUTS_HD static void Observe(const Ref& w, std::int32_t i, Obs* row) {
    const Vec2 at = w.agents.position[i];
    ParticleObs obs(row);
    // the adversary does not know the goal
    if (i > 0) obs.Put(w.world.landmarks[w.world.goal] - at);
    PutLandmarks(obs, at, w.world.landmarks, w.config.N, w.config.num_landmark_neighbors);
    PutNeighbors(obs, w.agents.position, w.num_agents, i, w.config.num_agent_neighbors);
  }
};

}  // namespace rollouts
