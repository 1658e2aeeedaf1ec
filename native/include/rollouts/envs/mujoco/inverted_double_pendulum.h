// SPDX-License-Identifier: Apache-2.0
// InvertedDoublePendulum-v5 of Gymnasium (inverted_double_pendulum_v5.py): keep a pole on a pole
// on a cart upright.
#pragma once

#include "rollouts/envs/mujoco/task.h"

namespace rollouts {

struct InvertedDoublePendulumTask {
  static constexpr ModelFile kModel{"inverted_double_pendulum.xml", 5};
  struct Config {
    double healthy_reward = 10;  // reward of each step until it falls
    double reset_noise_scale = 0.1;  // scale of the noise that is added to the model's own start
  };
  static constexpr InfoSpec kInfos[] = {
      {"reward_survive"}, {"distance_penalty"}, {"velocity_penalty"}};
  static constexpr ModelNeeds kNeeds{.nq = 1, .nv = 3, .nsite = 1};
  static constexpr DataArrays kReads = kSiteXpos | kQfrcConstraint;
  static constexpr std::int32_t kSubstepNs = 2'500;
  static constexpr double kMost = 10;  // bound of speeds and forces that are observed
  double before[2] = {};

  InvertedDoublePendulumTask(const Config&, const auto&) {}

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("healthy_reward", config.healthy_reward);
    visit("reset_noise_scale", config.reset_noise_scale);
  }
  ROLLOUTS_HD static bool ContactForces(const Config&) { return false; }

  ROLLOUTS_HD void DrawStart(const Config& config, const auto& model, Rng& rng, double* qpos,
                             double* qvel) const {
    mujoco::AddUniform(rng, config.reset_noise_scale, qpos, model.nq);
    mujoco::AddNormal(rng, config.reset_noise_scale, qvel, model.nv);
  }
  ROLLOUTS_HD void AfterReset(const Config&, const auto&, auto&) {}

  ROLLOUTS_HD StepResult AfterStep(const Config& config, const auto& sim, const float*,
                                   auto& infos) {
    const Fate fate = FateOf(sim);
    const double alive_bonus = fate.terminated ? 0 : config.healthy_reward;
    infos.Put(alive_bonus);
    infos.Put(-fate.distance_penalty);
    infos.Put(-fate.velocity_penalty);
    return StepResult::Of(alive_bonus - fate.distance_penalty - fate.velocity_penalty,
                          fate.terminated);
  }

  // Reward and end, computed from the tip's position and the poles' speeds.
  struct Fate {
    double distance_penalty;
    double velocity_penalty;
    bool terminated;
  };
  ROLLOUTS_HD static Fate FateOf(const auto& sim) {
    constexpr double kLowestTip = 1;  // metres
    const double x = sim.data.site_xpos[0];
    const double y = sim.data.site_xpos[2];
    const double v1 = sim.data.qvel[1];
    const double v2 = sim.data.qvel[2];
    return {.distance_penalty = 0.01 * (x * x) + (y - 2) * (y - 2),
            .velocity_penalty = 1e-3 * (v1 * v1) + 5e-3 * (v2 * v2),
            .terminated = y <= kLowestTip};
  }

  ROLLOUTS_HD void Observe(const Config&, const auto& sim, auto& obs) const {
    obs.Put(sim.data.qpos[0]);
    for (std::int32_t i = 1; i < sim.model.nq; ++i) obs.Put(LibrarySin(sim.data.qpos[i]));
    for (std::int32_t i = 1; i < sim.model.nq; ++i) obs.Put(LibraryCos(sim.data.qpos[i]));
    obs.PutClipped(sim.data.qvel, sim.model.nv, -kMost, kMost);
    obs.PutClipped(sim.data.qfrc_constraint, 1, -kMost, kMost);
  }
};

using InvertedDoublePendulum = MujocoEnv<InvertedDoublePendulumTask>;

}  // namespace rollouts
