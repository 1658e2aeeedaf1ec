// SPDX-License-Identifier: Apache-2.0
// InvertedDoublePendulum-v5 of Gymnasium (inverted_double_pendulum_v5.py): keep a pole on a pole
// on a cart upright.
#pragma once

#include <cmath>

#include "rollouts/envs/mujoco/mujoco_env.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts {

struct InvertedDoublePendulumTask {
  struct Config : MujocoConfig {
    Config() {
      xml_file = "inverted_double_pendulum.xml";
      frame_skip = 5;
    }
    double healthy_reward = 10;  // reward of each step until it falls
    double reset_noise_scale = 0.1;  // how far an episode's start is drawn from the model's own
  };
  static constexpr InfoSpec kInfos[] = {
      {"reward_survive"}, {"distance_penalty"}, {"velocity_penalty"}};
  static constexpr ModelNeeds kNeeds{.nq = 1, .nv = 3, .nsite = 1};
  static constexpr DataArrays kReads = kSiteXpos | kQfrcConstraint;
  static constexpr std::int32_t kSubstepNs = 2'500;
  static constexpr double kMost = 10;  // bound of speeds and forces that are observed
  double before[2] = {};

  InvertedDoublePendulumTask(const Config&, const PhysicsModel&) {}

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("healthy_reward", config.healthy_reward);
    visit("reset_noise_scale", config.reset_noise_scale);
  }
  static bool ContactForces(const Config&) { return false; }

  void DrawStart(const Config& config, const ModelView& model, Rng& rng, double* qpos,
                 double* qvel) const {
    mujoco::AddUniform(rng, config.reset_noise_scale, qpos, model.nq);
    mujoco::AddNormal(rng, config.reset_noise_scale, qvel, model.nv);
  }
  void AfterReset(const Config&, const Simulation&, InfoWriter&) {}

  StepResult AfterStep(const Config& config, const Simulation& sim, const float*,
                       InfoWriter& infos) {
    const Fate fate = FateOf(sim);
    const double alive_bonus = fate.terminated ? 0 : config.healthy_reward;
    infos.Put(alive_bonus);
    infos.Put(-fate.distance_penalty);
    infos.Put(-fate.velocity_penalty);
    return StepResult::Of(alive_bonus - fate.distance_penalty - fate.velocity_penalty,
                          fate.terminated);
  }

  // Reward and end, by the tip's place and the poles' speeds.
  struct Fate {
    double distance_penalty;
    double velocity_penalty;
    bool terminated;
  };
  static Fate FateOf(const Simulation& sim) {
    constexpr double kLowestTip = 1;  // metres
    const double x = sim.data.site_xpos[0];
    const double y = sim.data.site_xpos[2];
    const double v1 = sim.data.qvel[1];
    const double v2 = sim.data.qvel[2];
    return {.distance_penalty = 0.01 * (x * x) + (y - 2) * (y - 2),
            .velocity_penalty = 1e-3 * (v1 * v1) + 5e-3 * (v2 * v2),
            .terminated = y <= kLowestTip};
  }

  void Observe(const Config&, const Simulation& sim, ObservationWriter& obs) const {
    obs.Put(sim.data.qpos[0]);
    for (std::int32_t i = 1; i < sim.model.nq; ++i) obs.Put(std::sin(sim.data.qpos[i]));
    for (std::int32_t i = 1; i < sim.model.nq; ++i) obs.Put(std::cos(sim.data.qpos[i]));
    obs.PutClipped(sim.data.qvel, sim.model.nv, -kMost, kMost);
    obs.PutClipped(sim.data.qfrc_constraint, 1, -kMost, kMost);
  }
};

using InvertedDoublePendulum = MujocoEnv<InvertedDoublePendulumTask>;

}  // namespace rollouts
