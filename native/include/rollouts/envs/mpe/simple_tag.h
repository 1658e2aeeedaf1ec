// SPDX-License-Identifier: Apache-2.0
// Adversaries chase faster agents around obstacles: simple_tag_v3 of mpe2.
#pragma once

#include "rollouts/envs/mpe/chase.h"
#include "rollouts/envs/mpe/neighbors.h"

namespace rollouts {

struct MpeTag {
  struct Config {
    std::int32_t num_good = 1;         // agents that are chased
    std::int32_t num_adversaries = 3;  // agents that chase them
    std::int32_t num_obstacles = 2;    // large landmarks in the way
    bool continuous_actions = false;   // a Box of five pushes, not a Discrete of five moves
    bool curriculum = false;           // the speed of the chased follows curriculum_stage
    std::int32_t curriculum_stage = 0;  // with curriculum: half the speed at 0, 3/4 at 1, all at 2
    bool terminate_on_success = false;  // an episode ends when all of the chased are caught at once
    std::int32_t num_agent_neighbors = 0;  // nearest other agents that an agent sees; 0: all of them
    std::int32_t num_landmark_neighbors = 0;  // nearest obstacles that it sees; 0: all of them
  };
  static constexpr std::int32_t kMost = 64;
  struct World {
    Vec2 obstacles[kMost];
  };
  using Agents = ParticleAgents;
  using Obs = float;
  using Ref = WorldRef<MpeTag>;

  // The curriculum limits the speed of good agents.
  ROLLOUTS_HD static ChaseBody BodyOf(const Config& config, std::int32_t i) {
    if (i < config.num_adversaries) return {0.075, 3, 1};
    const double factor = config.curriculum ? 0.5 + 0.25 * config.curriculum_stage : 1;
    return {0.05, 4 * factor, 1.3 * factor};
  }

  static EnvSpec MakeSpec(const Config& config) {
    const std::int32_t good = config.num_good, n = config.num_adversaries + good;
    const std::int32_t limit = config.num_agent_neighbors;
    const std::int32_t obstacles = NumSeen(config.num_landmark_neighbors, config.num_obstacles);
    const std::int32_t seen = 4 + 2 * obstacles + 2 * NumSeen(limit, n - 1);
    const SpaceSpec action = ParticleAction(config.continuous_actions, true, 0);
    EnvSpec spec;
    spec.step_cost_ns = EnvSpec::CostNs(50 + 6 * n, n);
    AddParticles(spec, "adversary", config.num_adversaries, seen + 2 * NumSeen(limit, good),
                 action);
    AddParticles(spec, "agent", good, seen + 2 * NumSeen(limit, good - 1), action);
    return spec;
  }

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("num_good", config.num_good);
    visit("num_adversaries", config.num_adversaries);
    visit("num_obstacles", config.num_obstacles);
    visit("continuous_actions", config.continuous_actions);
    visit("curriculum", config.curriculum);
    visit("curriculum_stage", config.curriculum_stage);
    visit("terminate_on_success", config.terminate_on_success);
    visit("num_agent_neighbors", config.num_agent_neighbors);
    visit("num_landmark_neighbors", config.num_landmark_neighbors);
  }

  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Between("num_adversaries", config.num_adversaries, 0, kMost);
    // there must be an agent
    check.Between("num_good", config.num_good, config.num_adversaries > 0 ? 0 : 1, kMost);
    check.Between("num_obstacles", config.num_obstacles, 0, kMost);
    check.Between("curriculum_stage", config.curriculum_stage, 0, 2);
    check.Between("num_agent_neighbors", config.num_agent_neighbors, 0, 1000);
    check.Between("num_landmark_neighbors", config.num_landmark_neighbors, 0, 1000);
  }

  template <typename Visitor>
  static void VisitWorld(World& world, Visitor& visit) {
    visit("obstacles", world.obstacles);
  }

  template <typename Visitor>
  static void VisitFields(const Config&, Agents& agents, Visitor& visit) {
    Agents::Visit(agents, visit);
  }

  ROLLOUTS_HD static void Reset(const Ref& w, Rng& rng) {
    Particles::Draw(rng, w.agents.position, w.num_agents, 1);
    Particles::Draw(rng, w.world.obstacles, w.config.num_obstacles, 0.9);
  }

  // First the forces, computed from all positions; then all agents move.
  static constexpr int kPhases = 2;

  template <int kPhase>
  ROLLOUTS_HD static void StepAgent(const Ref& w, std::int32_t i) {
    if constexpr (kPhase == 0) {
      w.agents.force[i] = Chase<MpeTag>::ForceOn(w, i, Particles::PushOf(w, i), w.world.obstacles);
    } else {
      Particles::Move(w.agents, i, w.agents.force[i], BodyOf(w.config, i).max_speed);
    }
  }

  ROLLOUTS_HD static bool EndStep(const Ref& w, Rng&) {
    double catches = 0;
    bool all_caught = true;
    for (std::int32_t i = w.config.num_adversaries; i < w.num_agents; ++i) {
      const std::int32_t caught = Chase<MpeTag>::NumCatchers(w, i);
      catches += caught;
      all_caught &= caught > 0;
      const Vec2 at = w.agents.position[i];
      double reward = 0;
      reward -= 10 * caught;
      reward -= Chase<MpeTag>::OutsideCost(at.x);
      reward -= Chase<MpeTag>::OutsideCost(at.y);
      w.status.reward[i] = reward;
    }
    for (std::int32_t i = 0; i < w.config.num_adversaries; ++i) w.status.reward[i] = 10 * catches;
    return w.config.terminate_on_success && all_caught && !Particles::AtTimeLimit(w);
  }

  ROLLOUTS_HD static void Observe(const Ref& w, std::int32_t i, Obs* row) {
    const Vec2 at = w.agents.position[i];
    ParticleObs obs(row);
    obs.Put(w.agents.velocity[i]);
    obs.Put(at);
    PutLandmarks(obs, at, w.world.obstacles, w.config.num_obstacles,
                 w.config.num_landmark_neighbors);
    PutNeighbors(obs, w.agents.position, w.num_agents, i, w.config.num_agent_neighbors);
    PutVelocities(obs, w, i);
  }

 private:
  // Writes velocities of good agents. Where an agent sees only the nearest few, zeros stand for the
  // velocities of adversaries.
  ROLLOUTS_HD static void PutVelocities(ParticleObs& obs, const Ref& w, std::int32_t i) {
    const std::int32_t limit = w.config.num_agent_neighbors, first = w.config.num_adversaries;
    if (limit == 0) {
      for (std::int32_t other = first; other < w.num_agents; ++other) {
        if (other != i) obs.Put(w.agents.velocity[other]);
      }
      return;
    }
    const std::int32_t seen =
        SeeNearest(w.agents.position[i], w.agents.position, w.num_agents, i, limit,
                   [&](std::int32_t other) {
                     obs.Put(other < first ? Vec2{} : w.agents.velocity[other]);
                   });
    obs.PutZeros(2 * (limit - seen));
  }
};

}  // namespace rollouts
