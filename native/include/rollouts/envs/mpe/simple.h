// SPDX-License-Identifier: Apache-2.0
// An agent and its landmark: simple_v3 of mpe2.
#pragma once

#include "rollouts/envs/mpe/spaces.h"

namespace rollouts {

struct MpeSimple {
  struct Config {
    bool continuous_actions = false;  // a Box of five pushes, not a Discrete of five moves
  };
  struct World {
    Vec2 landmark;
  };
  using Agents = ParticleAgents;
  using Obs = float;
  using Ref = WorldRef<MpeSimple>;

  static EnvSpec MakeSpec(const Config& config) {
    EnvSpec spec;
    spec.step_cost_ns = 60;
    AddParticles(spec, "agent", 1, 4, ParticleAction(config.continuous_actions, true, 0));
    return spec;
  }

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("continuous_actions", config.continuous_actions);
  }

  template <typename Visitor>
  static void VisitWorld(World& world, Visitor& visit) {
    visit("landmark", world.landmark);
  }

  template <typename Visitor>
  static void VisitFields(const Config&, Agents& agents, Visitor& visit) {
    Agents::Visit(agents, visit);
  }

  ROLLOUTS_HD static void Reset(const Ref& w, Rng& rng) {
    Particles::Draw(rng, w.agents.position, 1, 1);
    Particles::Draw(rng, &w.world.landmark, 1, 1);
  }

  static constexpr int kPhases = 1;

  template <int kPhase>
  ROLLOUTS_HD static void StepAgent(const Ref& w, std::int32_t i) {
    const Vec2 force = Particles::PushOf(w, i) * Particles::kAcceleration;
    Particles::Move(w.agents, i, force);
  }

  ROLLOUTS_HD static bool EndStep(const Ref& w, Rng&) {
    w.status.reward[0] = -SquaredLength(w.agents.position[0] - w.world.landmark);
    return false;
  }

  ROLLOUTS_HD static void Observe(const Ref& w, std::int32_t i, Obs* row) {
    ParticleObs obs(row);
    obs.Put(w.agents.velocity[i]);
    obs.Put(w.world.landmark - w.agents.position[i]);
  }
};

}  // namespace rollouts
