// SPDX-License-Identifier: Apache-2.0
// Agents that divide as many landmarks among themselves and must not collide: simple_spread_v3 of
// mpe2.
#pragma once

#include "rollouts/envs/mpe/neighbors.h"

namespace rollouts {

struct MpeSpread {
  struct Config {
    std::int32_t N = 3;                // number of agents, and of landmarks
    double local_ratio = 0.5;          // share of an agent's own reward; the rest is common to all
    bool continuous_actions = false;   // a Box of five pushes, not a Discrete of five moves
    bool curriculum = false;           // rewards follow curriculum_stage
    std::int32_t curriculum_stage = 0;  // with curriculum: collisions are free at 0, not at 1
    bool terminate_on_success = false;  // an episode ends when every landmark is covered
    std::int32_t num_agent_neighbors = 0;  // nearest other agents that an agent sees; 0: all of them
    std::int32_t num_landmark_neighbors = 0;  // nearest landmarks that it sees; 0: all of them
  };
  static constexpr std::int32_t kMost = 64;
  static constexpr double kSize = 0.15;
  static constexpr double kTouching = kSize + kSize;
  static constexpr double kCovered = 0.1;  // an agent within this distance covers a landmark
  static constexpr std::int32_t kWords = 2;  // words that agents could say; all are silent
  struct World {
    Vec2 landmarks[kMost];
  };
  using Agents = ParticleAgents;
  using Obs = float;
  using Ref = WorldRef<MpeSpread>;

  static EnvSpec MakeSpec(const Config& config) {
    const std::int32_t n = config.N;
    const std::int32_t others = NumSeen(config.num_agent_neighbors, n - 1);
    const std::int32_t landmarks = NumSeen(config.num_landmark_neighbors, n);
    EnvSpec spec;
    spec.step_cost_ns = EnvSpec::CostNs(50 + 6 * n, n);
    AddParticles(spec, "agent", n, 4 + 2 * landmarks + (2 + kWords) * others,
                 ParticleAction(config.continuous_actions, true, 0));
    return spec;
  }

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("N", config.N);
    visit("local_ratio", config.local_ratio);
    visit("continuous_actions", config.continuous_actions);
    visit("curriculum", config.curriculum);
    visit("curriculum_stage", config.curriculum_stage);
    visit("terminate_on_success", config.terminate_on_success);
    visit("num_agent_neighbors", config.num_agent_neighbors);
    visit("num_landmark_neighbors", config.num_landmark_neighbors);
  }

  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Between("N", config.N, 1, kMost);
    check.Probability("local_ratio", config.local_ratio);
    check.Between("curriculum_stage", config.curriculum_stage, 0, 1);
    check.Between("num_agent_neighbors", config.num_agent_neighbors, 0, 1000);
    check.Between("num_landmark_neighbors", config.num_landmark_neighbors, 0, 1000);
  }

  template <typename Visitor>
  static void VisitWorld(World& world, Visitor& visit) {
    visit("landmarks", world.landmarks);
  }

  template <typename Visitor>
  static void VisitFields(const Config&, Agents& agents, Visitor& visit) {
    Agents::Visit(agents, visit);
  }

  ROLLOUTS_HD static void Reset(const Ref& w, Rng& rng) {
    Particles::Draw(rng, w.agents.position, w.num_agents, 1);
    Particles::Draw(rng, w.world.landmarks, w.num_agents, 1);
  }

  // First the forces, computed from all positions; then all agents move.
  static constexpr int kPhases = 2;

  template <int kPhase>
  ROLLOUTS_HD static void StepAgent(const Ref& w, std::int32_t i) {
    if constexpr (kPhase == 0) {
      const Vec2 push = Particles::PushOf(w, i) * Particles::kAcceleration;
      w.agents.force[i] = Particles::AddContacts(push, w.agents.position, w.num_agents, i,
                                                 [](std::int32_t) { return kTouching; });
    } else {
      Particles::Move(w.agents, i, w.agents.force[i]);
    }
  }

  ROLLOUTS_HD static bool EndStep(const Ref& w, Rng&) {
    double everybody = 0;
    bool covered = true;
    for (std::int32_t k = 0; k < w.num_agents; ++k) {
      const double nearest = Particles::NearestDistance(w.world.landmarks[k], w.agents.position,
                                                        w.num_agents);
      everybody -= nearest;
      covered &= nearest < kCovered;
    }
    if (!w.config.curriculum || w.config.curriculum_stage > 0) CountCollisions(w);
    const double ratio = w.config.local_ratio;
    for (std::int32_t i = 0; i < w.num_agents; ++i) {
      w.status.reward[i] = everybody * (1 - ratio) + w.status.reward[i] * ratio;
    }
    return w.config.terminate_on_success && covered && !Particles::AtTimeLimit(w);
  }

  ROLLOUTS_HD static void Observe(const Ref& w, std::int32_t i, Obs* row) {
    const std::int32_t n = w.num_agents;
    const Vec2 at = w.agents.position[i];
    ParticleObs obs(row);
    obs.Put(w.agents.velocity[i]);
    obs.Put(at);
    PutLandmarks(obs, at, w.world.landmarks, n, w.config.num_landmark_neighbors);
    PutNeighbors(obs, w.agents.position, n, i, w.config.num_agent_neighbors);
    obs.PutZeros(kWords * NumSeen(w.config.num_agent_neighbors, n - 1));
  }

 private:
  // Subtracts 1 from the rewards of both agents for each collision.
  ROLLOUTS_HD static void CountCollisions(const Ref& w) {
    const Vec2* const position = w.agents.position;
    for (std::int32_t i = 0; i < w.num_agents; ++i) {
      for (std::int32_t other = 0; other < i; ++other) {
        const bool collide = Particles::Collide(position[i], position[other], kTouching);
        w.status.reward[i] -= collide;
        w.status.reward[other] -= collide;
      }
    }
  }
};

}  // namespace rollouts
