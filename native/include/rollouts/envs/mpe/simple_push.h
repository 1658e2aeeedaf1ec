// SPDX-License-Identifier: Apache-2.0
// An agent goes to one of two landmarks, and an adversary pushes it away from there:
// simple_push_v3 of mpe2.
#pragma once

#include "rollouts/envs/mpe/spaces.h"

namespace rollouts {

struct MpePush {
  struct Config {
    bool continuous_actions = false;  // a Box of five pushes, not a Discrete of five moves
  };
  static constexpr double kTouching = 0.05 + 0.05;
  struct World {
    Vec2 landmarks[2];
    std::int32_t goal;
  };
  using Agents = ParticleAgents;  // the adversary, then the agent
  using Obs = float;
  using Ref = WorldRef<MpePush>;

  static EnvSpec MakeSpec(const Config& config) {
    const SpaceSpec action = ParticleAction(config.continuous_actions, true, 0);
    EnvSpec spec;
    spec.step_cost_ns = 120;
    AddParticles(spec, "adversary", 1, 8, action);
    AddParticles(spec, "agent", 1, 19, action);
    return spec;
  }

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("continuous_actions", config.continuous_actions);
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
    w.world.goal = static_cast<std::int32_t>(rng.Below(2));
    Particles::Draw(rng, w.agents.position, 2, 1);
    Particles::Draw(rng, w.world.landmarks, 2, 1);
  }

  // First the forces, computed from both positions; then both agents move.
  static constexpr int kPhases = 2;

  template <int kPhase>
  ROLLOUTS_HD static void StepAgent(const Ref& w, std::int32_t i) {
    if constexpr (kPhase == 0) {
      const Vec2 push = Particles::PushOf(w, i) * Particles::kAcceleration;
      w.agents.force[i] = Particles::AddContacts(push, w.agents.position, 2, i,
                                                 [](std::int32_t) { return kTouching; });
    } else {
      Particles::Move(w.agents, i, w.agents.force[i]);
    }
  }

  ROLLOUTS_HD static bool EndStep(const Ref& w, Rng&) {
    const Vec2 goal = w.world.landmarks[w.world.goal];
    const double agent = Length(w.agents.position[1] - goal);
    w.status.reward[0] = agent - Length(goal - w.agents.position[0]);
    w.status.reward[1] = -agent;
    return false;
  }

  ROLLOUTS_HD static const char* CheckWorld(const Ref& w) {
    return IsWithin(w.world.goal, 0, 1) ? nullptr : kNoSuchState;
  }

  ROLLOUTS_HD static void Observe(const Ref& w, std::int32_t i, Obs* row) {
    const bool is_agent = i == 1;
    const Vec2 at = w.agents.position[i];
    ParticleObs obs(row);
    obs.Put(w.agents.velocity[i]);
    if (is_agent) {
      obs.Put(w.world.landmarks[w.world.goal] - at);
      // the agent's own colour, which indicates the goal
      obs.PutColor(w.world.goal + 1, 0.75, 0.25, 3);
    }
    obs.PutSeen(at, w.world.landmarks, 2);
    if (is_agent) {
      obs.PutColor(1, 0.9, 0.1, 3);
      obs.PutColor(2, 0.9, 0.1, 3);
    }
    obs.PutOthers(w.agents.position, 2, i);
  }
};

}  // namespace rollouts
