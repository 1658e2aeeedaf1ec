// SPDX-License-Identifier: Apache-2.0
// Two agents, each of which tells the other one to which landmark to go: simple_reference_v3 of
// mpe2.
#pragma once

#include "rollouts/envs/mpe/spaces.h"

namespace rollouts {

struct MpeReference {
  struct Config {
    double local_ratio = 0.5;         // share of an agent's own reward; the rest is their mean
    bool continuous_actions = false;  // a Box of pushes and signals, not a Discrete of both
  };
  static constexpr std::int32_t kWords = 10, kLandmarks = 3;
  static constexpr std::int32_t kElements = Particles::kMoves + kWords;  // elements of a Box
  struct World {
    Vec2 landmarks[kLandmarks];
    std::int32_t goals[2];  // where an agent wants the other one to go
  };
  struct Agents : ParticleAgents {
    float* said;  // kWords for each agent
  };
  using Obs = float;
  using Ref = WorldRef<MpeReference>;

  static EnvSpec MakeSpec(const Config& config) {
    EnvSpec spec;
    spec.step_cost_ns = 150;
    AddParticles(spec, "agent", 2, 2 + 2 * kLandmarks + 3 + kWords,
                 ParticleAction(config.continuous_actions, true, kWords));
    return spec;
  }

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("local_ratio", config.local_ratio);
    visit("continuous_actions", config.continuous_actions);
  }

  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Probability("local_ratio", config.local_ratio);
  }

  template <typename Visitor>
  static void VisitWorld(World& world, Visitor& visit) {
    visit("landmarks", world.landmarks);
    visit("goals", world.goals);
  }

  template <typename Visitor>
  static void VisitFields(const Config&, Agents& agents, Visitor& visit) {
    ParticleAgents::Visit(agents, visit);
    visit("said", agents.said, kWords);
  }

  ROLLOUTS_HD static void Reset(const Ref& w, Rng& rng) {
    for (std::int32_t& goal : w.world.goals) {
      goal = static_cast<std::int32_t>(rng.Below(kLandmarks));
    }
    Particles::Draw(rng, w.agents.position, 2, 1);
    Particles::Draw(rng, w.world.landmarks, kLandmarks, 1);
  }

  static constexpr int kPhases = 1;

  template <int kPhase>
  ROLLOUTS_HD static void StepAgent(const Ref& w, std::int32_t i) {
    float* const said = w.agents.said + kWords * i;
    Vec2 push;
    if (w.config.continuous_actions) {
      const float* const action = w.actions.Of<float>(0) + kElements * i;
      push = Particles::PushOf(action);
      Say(action + Particles::kMoves, kWords, said);
    } else {
      const std::int32_t action = w.actions.Of<std::int32_t>(0)[i];
      push = Particles::PushOf(action % Particles::kMoves);
      Say(action / Particles::kMoves, kWords, said);
    }
    Particles::Move(w.agents, i, push * Particles::kAcceleration);
  }

  ROLLOUTS_HD static bool EndStep(const Ref& w, Rng&) {
    const double first = Reward(w, 0), second = Reward(w, 1);
    const double both = (first + second) / 2;
    const double ratio = w.config.local_ratio;
    w.status.reward[0] = both * (1 - ratio) + first * ratio;
    w.status.reward[1] = both * (1 - ratio) + second * ratio;
    return false;
  }

  ROLLOUTS_HD static const char* CheckWorld(const Ref& w) {
    for (const std::int32_t goal : w.world.goals) {
      if (!IsWithin(goal, 0, kLandmarks - 1)) return kNoSuchState;
    }
    return nullptr;
  }

  ROLLOUTS_HD static void Observe(const Ref& w, std::int32_t i, Obs* row) {
    ParticleObs obs(row);
    obs.Put(w.agents.velocity[i]);
    obs.PutSeen(w.agents.position[i], w.world.landmarks, kLandmarks);
    obs.PutColor(w.world.goals[i], 0.75, 0.25, 3);
    obs.Put(w.agents.said + kWords * (1 - i), kWords);
  }

 private:
  ROLLOUTS_HD static double Reward(const Ref& w, std::int32_t i) {
    return -Length(w.agents.position[1 - i] - w.world.landmarks[w.world.goals[i]]);
  }
};

}  // namespace rollouts
