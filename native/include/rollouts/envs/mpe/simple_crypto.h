// SPDX-License-Identifier: Apache-2.0
// Alice sends Bob one of two colours. Both have a key, which Eve, who listens, does not have:
// simple_crypto_v3 of mpe2. No agent moves, so positions are left out.
#pragma once

#include "rollouts/envs/mpe/spaces.h"

namespace rollouts {

struct MpeCrypto {
  struct Config {
    bool continuous_actions = false;  // a Box of four signals, not a Discrete of four words
  };
  static constexpr std::int32_t kWords = 4;
  static constexpr std::int32_t kEve = 0, kBob = 1, kAlice = 2;
  struct World {
    std::int32_t goal;  // the colour that is sent: 0 or 1
    std::int32_t key;   // 0 or 1
  };
  struct Agents {
    float* said;  // kWords for each agent
  };
  using Obs = float;
  using Ref = WorldRef<MpeCrypto>;

  static EnvSpec MakeSpec(const Config& config) {
    const SpaceSpec action = ParticleAction(config.continuous_actions, false, kWords);
    EnvSpec spec;
    spec.step_cost_ns = 100;
    AddParticles(spec, "eve", 1, kWords, action);
    AddParticles(spec, "bob", 1, 2 * kWords, action);
    AddParticles(spec, "alice", 1, 2 * kWords, action);
    return spec;
  }

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("continuous_actions", config.continuous_actions);
  }

  template <typename Visitor>
  static void VisitWorld(World& world, Visitor& visit) {
    visit("goal", world.goal);
    visit("key", world.key);
  }

  template <typename Visitor>
  static void VisitFields(const Config&, Agents& agents, Visitor& visit) {
    visit("said", agents.said, kWords);
  }

  ROLLOUTS_HD static void Reset(const Ref& w, Rng& rng) {
    w.world.goal = static_cast<std::int32_t>(rng.Below(2));
    w.world.key = static_cast<std::int32_t>(rng.Below(2));
  }

  static constexpr int kPhases = 1;

  template <int kPhase>
  ROLLOUTS_HD static void StepAgent(const Ref& w, std::int32_t i) {
    float* const said = w.agents.said + kWords * i;
    if (w.config.continuous_actions) {
      Say(w.actions.Of<float>(0) + kWords * i, kWords, said);
    } else {
      Say(w.actions.Of<std::int32_t>(0)[i], kWords, said);
    }
  }

  ROLLOUTS_HD static bool EndStep(const Ref& w, Rng&) {
    const double eve = Error(w, kEve);
    w.status.reward[kEve] = 0 - eve;
    w.status.reward[kBob] = w.status.reward[kAlice] = eve - Error(w, kBob);
    return false;
  }

  ROLLOUTS_HD static const char* CheckWorld(const Ref& w) {
    return IsWithin(w.world.goal, 0, 1) && IsWithin(w.world.key, 0, 1) ? nullptr : kNoSuchState;
  }

  ROLLOUTS_HD static void Observe(const Ref& w, std::int32_t i, Obs* row) {
    ParticleObs obs(row);
    if (i == kAlice) obs.PutColor(w.world.goal, 1, 0, kWords);
    if (i != kEve) obs.PutColor(w.world.key, 1, 0, kWords);
    if (i != kAlice) obs.Put(w.agents.said + kWords * kAlice, kWords);
  }

 private:
  // The distance of an agent's word from the goal's colour; 0 for an agent that says nothing.
  ROLLOUTS_HD static double Error(const Ref& w, std::int32_t i) {
    const float* const said = w.agents.said + kWords * i;
    double error = 0;
    bool silent = true;
    for (std::int32_t k = 0; k < kWords; ++k) {
      const double wrong = said[k] - double{k == w.world.goal ? 1.0 : 0.0};
      error += wrong * wrong;
      silent &= said[k] == 0;
    }
    return silent ? 0 : error;
  }
};

}  // namespace rollouts
