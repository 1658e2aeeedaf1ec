// SPDX-License-Identifier: Apache-2.0
// Adversaries, one of whom leads them by words, chase agents that eat food and hide in forests:
// simple_world_comm_v3 of mpe2.
#pragma once

#include "rollouts/envs/mpe/chase.h"
#include "rollouts/envs/mpe/spaces.h"

namespace rollouts {

struct MpeWorldComm {
  struct Config {
    std::int32_t num_good = 2;         // agents that are chased
    std::int32_t num_adversaries = 4;  // agents that chase them; the first one leads
    std::int32_t num_obstacles = 1;    // large landmarks in the way
    std::int32_t num_food = 2;         // landmarks that feed the good agents
    std::int32_t num_forests = 2;      // where agents are seen only from inside, and by the leader
    bool continuous_actions = false;   // Boxes of pushes and signals, not Discrete ones
  };
  static constexpr std::int32_t kMostAgents = 64;  // agents of a kind
  static constexpr std::int32_t kMostLandmarks = 32;  // landmarks of a kind, one per bit of a word
  static constexpr std::int32_t kWords = 4;
  static constexpr double kFoodSize = 0.03, kForestSize = 0.3;
  struct World {
    Vec2 landmarks[3 * kMostLandmarks];  // obstacles, food, forests
    float said[kWords];                  // by the leader
  };
  struct Agents : ParticleAgents {
    std::uint32_t* forests;  // the forests that it is in, a bit each
  };
  using Obs = float;
  using Ref = WorldRef<MpeWorldComm>;

  ROLLOUTS_HD static ChaseBody BodyOf(const Config& config, std::int32_t i) {
    return i < config.num_adversaries ? ChaseBody{0.075, 3, 1} : ChaseBody{0.045, 4, 1.3};
  }

  static EnvSpec MakeSpec(const Config& config) {
    const bool continuous = config.continuous_actions;
    const std::int32_t good = config.num_good, n = config.num_adversaries + good;
    const std::int32_t seen = 4 + 2 * NumLandmarks(config) + 2 * (n - 1) + config.num_forests;
    const std::int32_t adversary = seen + 2 * good + kWords;
    EnvSpec spec;
    spec.step_cost_ns = EnvSpec::CostNs(60 + 6 * n, n);
    AddParticles(spec, "leadadversary", 1, adversary, ParticleAction(continuous, true, kWords));
    AddParticles(spec, "adversary", config.num_adversaries - 1, adversary,
                 ParticleAction(continuous, true, 0));
    AddParticles(spec, "agent", good, seen + 2 * (good - 1), ParticleAction(continuous, true, 0));
    return spec;
  }

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("num_good", config.num_good);
    visit("num_adversaries", config.num_adversaries);
    visit("num_obstacles", config.num_obstacles);
    visit("num_food", config.num_food);
    visit("num_forests", config.num_forests);
    visit("continuous_actions", config.continuous_actions);
  }

  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Between("num_good", config.num_good, 1, kMostAgents);
    check.Between("num_adversaries", config.num_adversaries, 1, kMostAgents);
    check.Between("num_obstacles", config.num_obstacles, 0, kMostLandmarks);
    // rewards depend on the distance to the nearest food
    check.Between("num_food", config.num_food, 1, kMostLandmarks);
    check.Between("num_forests", config.num_forests, 0, kMostLandmarks);
  }

  template <typename Visitor>
  static void VisitWorld(World& world, Visitor& visit) {
    visit("landmarks", world.landmarks);
    visit("said", world.said);
  }

  template <typename Visitor>
  static void VisitFields(const Config&, Agents& agents, Visitor& visit) {
    ParticleAgents::Visit(agents, visit);
    visit("forests", agents.forests);
  }

  ROLLOUTS_HD static void Reset(const Ref& w, Rng& rng) {
    Particles::Draw(rng, w.agents.position, w.num_agents, 1);
    Particles::Draw(rng, w.world.landmarks, NumLandmarks(w.config), 0.9);
    for (std::int32_t i = 0; i < w.num_agents; ++i) EnterForests(w, i);
  }

  // First the forces, computed from all positions; then all agents move.
  static constexpr int kPhases = 2;

  template <int kPhase>
  ROLLOUTS_HD static void StepAgent(const Ref& w, std::int32_t i) {
    if constexpr (kPhase == 0) {
      w.agents.force[i] = Chase<MpeWorldComm>::ForceOn(w, i, PushOf(w, i), w.world.landmarks);
    } else {
      Particles::Move(w.agents, i, w.agents.force[i], BodyOf(w.config, i).max_speed);
      EnterForests(w, i);
    }
  }

  ROLLOUTS_HD static bool EndStep(const Ref& w, Rng&) {
    Lead(w);
    std::int32_t catches = 0;
    for (std::int32_t i = w.config.num_adversaries; i < w.num_agents; ++i) {
      const std::int32_t caught = Chase<MpeWorldComm>::NumCatchers(w, i);
      catches += caught;
      w.status.reward[i] = GoodReward(w, i, caught);
    }
    const Vec2* const position = w.agents.position;
    const Vec2* const good = position + w.config.num_adversaries;
    for (std::int32_t i = 0; i < w.config.num_adversaries; ++i) {
      double reward = -0.1 * Particles::NearestDistance(position[i], good, w.config.num_good);
      // added one by one, because rounding depends on the order
      for (std::int32_t k = 0; k < catches; ++k) reward += 5;
      w.status.reward[i] = reward;
    }
    return false;
  }

  ROLLOUTS_HD static void Observe(const Ref& w, std::int32_t i, Obs* row) {
    const Vec2 at = w.agents.position[i];
    const bool adversary = i < w.config.num_adversaries;
    ParticleObs obs(row);
    obs.Put(w.agents.velocity[i]);
    obs.Put(at);
    obs.PutSeen(at, w.world.landmarks, NumLandmarks(w.config));
    for (std::int32_t other = 0; other < w.num_agents; ++other) {
      if (other != i) obs.Put(Sees(w, i, other) ? w.agents.position[other] - at : Vec2{});
    }
    if (!adversary) PutForests(obs, w, i);
    for (std::int32_t other = w.config.num_adversaries; other < w.num_agents; ++other) {
      if (other != i) obs.Put(Sees(w, i, other) ? w.agents.velocity[other] : Vec2{});
    }
    if (!adversary) return;
    PutForests(obs, w, i);
    obs.Put(w.world.said, kWords);
  }

 private:
  ROLLOUTS_HD static constexpr std::int32_t NumLandmarks(const Config& config) {
    return config.num_obstacles + config.num_food + config.num_forests;
  }

  // The push of an agent. The leader's action also has words, so the actions of the other agents
  // begin after these.
  ROLLOUTS_HD static Vec2 PushOf(const Ref& w, std::int32_t i) {
    if (!w.config.continuous_actions) {
      return Particles::PushOf(w.actions.Of<std::int32_t>(0)[i] % Particles::kMoves);
    }
    const std::int32_t words = i > 0 ? kWords : 0;
    return Particles::PushOf(w.actions.Of<float>(0) + words + Particles::kMoves * i);
  }

  // Stores the words that the leader said.
  ROLLOUTS_HD static void Lead(const Ref& w) {
    if (w.config.continuous_actions) {
      Say(w.actions.Of<float>(0) + Particles::kMoves, kWords, w.world.said);
    } else {
      Say(w.actions.Of<std::int32_t>(0)[0] / Particles::kMoves, kWords, w.world.said);
    }
  }

  ROLLOUTS_HD static void EnterForests(const Ref& w, std::int32_t i) {
    const Vec2* const forests = w.world.landmarks + w.config.num_obstacles + w.config.num_food;
    const double touching = BodyOf(w.config, i).size + kForestSize;
    std::uint32_t inside = 0;
    for (std::int32_t k = 0; k < w.config.num_forests; ++k) {
      const bool in = Particles::Collide(w.agents.position[i], forests[k], touching);
      inside |= static_cast<std::uint32_t>(in) << k;
    }
    w.agents.forests[i] = inside;
  }

  // Tells if one agent sees another: both are outside, or in the same forest. The leader sees all
  // agents.
  ROLLOUTS_HD static bool Sees(const Ref& w, std::int32_t i, std::int32_t other) {
    const std::uint32_t own = w.agents.forests[i], others = w.agents.forests[other];
    return (own & others) != 0 || (own | others) == 0 || i == 0;
  }

  ROLLOUTS_HD static void PutForests(ParticleObs& obs, const Ref& w, std::int32_t i) {
    for (std::int32_t k = 0; k < w.config.num_forests; ++k) {
      obs.Put((w.agents.forests[i] >> k & 1) != 0 ? 1.0 : -1.0);
    }
  }

  ROLLOUTS_HD static double GoodReward(const Ref& w, std::int32_t i, std::int32_t caught) {
    const Vec2* const food = w.world.landmarks + w.config.num_obstacles;
    const Vec2 at = w.agents.position[i];
    const double touching = BodyOf(w.config, i).size + kFoodSize;
    double reward = 0;
    reward -= 5 * caught;
    reward -= 2 * Chase<MpeWorldComm>::OutsideCost(at.x);
    reward -= 2 * Chase<MpeWorldComm>::OutsideCost(at.y);
    for (std::int32_t k = 0; k < w.config.num_food; ++k) {
      if (Particles::Collide(at, food[k], touching)) reward += 2;
    }
    return reward - 0.05 * Particles::NearestDistance(at, food, w.config.num_food);
  }
};

}  // namespace rollouts
