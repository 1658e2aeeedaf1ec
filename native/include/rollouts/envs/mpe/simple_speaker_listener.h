// SPDX-License-Identifier: Apache-2.0
// A speaker that stands still tells a listener to which landmark to go:
// simple_speaker_listener_v4 of mpe2.
#pragma once

#include "rollouts/envs/mpe/spaces.h"

namespace rollouts {

struct MpeSpeakerListener {
  struct Config {
    bool continuous_actions = false;  // Boxes of signals and pushes, not Discrete ones
  };
  static constexpr std::int32_t kWords = 3, kLandmarks = 3;
  static constexpr std::int32_t kSpeaker = 0, kListener = 1;
  struct World {
    Vec2 landmarks[kLandmarks];
    std::int32_t goal;
  };
  struct Agents : ParticleAgents {
    float* said;  // kWords for each agent; the listener is silent
  };
  using Obs = float;
  using Ref = WorldRef<MpeSpeakerListener>;

  static EnvSpec MakeSpec(const Config& config) {
    EnvSpec spec;
    spec.step_cost_ns = 100;
    AddParticles(spec, "speaker", 1, 3, ParticleAction(config.continuous_actions, false, kWords));
    AddParticles(spec, "listener", 1, 2 + 2 * kLandmarks + kWords,
                 ParticleAction(config.continuous_actions, true, 0));
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
    ParticleAgents::Visit(agents, visit);
    visit("said", agents.said, kWords);
  }

  ROLLOUTS_HD static void Reset(const Ref& w, Rng& rng) {
    w.world.goal = static_cast<std::int32_t>(rng.Below(kLandmarks));
    Particles::Draw(rng, w.agents.position, 2, 1);
    Particles::Draw(rng, w.world.landmarks, kLandmarks, 1);
  }

  static constexpr int kPhases = 1;

  template <int kPhase>
  ROLLOUTS_HD static void StepAgent(const Ref& w, std::int32_t i) {
    const bool continuous = w.config.continuous_actions;
    if (i == kListener) {
      const Vec2 push = continuous ? Particles::PushOf(w.actions.Of<float>(1))
                                   : Particles::PushOf(w.actions.Of<std::int32_t>(1)[0]);
      Particles::Move(w.agents, i, push * Particles::kAcceleration);
    } else if (continuous) {
      Say(w.actions.Of<float>(0), kWords, w.agents.said);
    } else {
      Say(w.actions.Of<std::int32_t>(0)[0], kWords, w.agents.said);
    }
  }

  ROLLOUTS_HD static bool EndStep(const Ref& w, Rng&) {
    const Vec2 goal = w.world.landmarks[w.world.goal];
    const double reward = -SquaredLength(w.agents.position[kListener] - goal);
    w.status.reward[kSpeaker] = w.status.reward[kListener] = reward;
    return false;
  }

  ROLLOUTS_HD static const char* CheckWorld(const Ref& w) {
    return IsWithin(w.world.goal, 0, kLandmarks - 1) ? nullptr : kNoSuchState;
  }

  ROLLOUTS_HD static void Observe(const Ref& w, std::int32_t i, Obs* row) {
    ParticleObs obs(row);
    if (i == kSpeaker) {
      obs.PutColor(w.world.goal, 0.65, 0.15, 3);
      return;
    }
    obs.Put(w.agents.velocity[i]);
    obs.PutSeen(w.agents.position[i], w.world.landmarks, kLandmarks);
    obs.Put(w.agents.said, kWords);
  }
};

}  // namespace rollouts
