// SPDX-License-Identifier: Apache-2.0
// InvertedPendulum-v5 of Gymnasium (inverted_pendulum_v5.py): keep a pole on a cart upright.
#pragma once

#include "rollouts/envs/mujoco/task.h"

namespace rollouts {

struct InvertedPendulumTask {
  static constexpr ModelFile kModel{"inverted_pendulum.xml", 2};
  struct Config {
    double reset_noise_scale = 0.01;  // scale of the noise that is added to the model's own start
  };
  static constexpr InfoSpec kInfos[] = {{"reward_survive"}};
  static constexpr ModelNeeds kNeeds{.nq = 2, .nv = 2};
  static constexpr DataArrays kReads = 0;
  static constexpr std::int32_t kSubstepNs = 2'000;
  double before[2] = {};

  InvertedPendulumTask(const Config&, const auto&) {}

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("reset_noise_scale", config.reset_noise_scale);
  }
  ROLLOUTS_HD static bool ContactForces(const Config&) { return false; }

  ROLLOUTS_HD void DrawStart(const Config& config, const auto& model, Rng& rng, double* qpos,
                             double* qvel) const {
    mujoco::AddUniform(rng, config.reset_noise_scale, qpos, model.nq);
    mujoco::AddUniform(rng, config.reset_noise_scale, qvel, model.nv);
  }
  ROLLOUTS_HD void AfterReset(const Config&, const auto&, auto&) {}

  ROLLOUTS_HD StepResult AfterStep(const Config&, const auto& sim, const float*, auto& infos) {
    const bool terminated = HasFallen(sim);
    const double reward = terminated ? 0 : 1;
    infos.Put(reward);
    return StepResult::Of(reward, terminated);
  }

  ROLLOUTS_HD static bool HasFallen(const auto& sim) {
    constexpr double kMaxAngle = 0.2;  // radians from upright
    const bool finite = mujoco::AllFinite(sim.data.qpos, sim.model.nq) &&
                        mujoco::AllFinite(sim.data.qvel, sim.model.nv);
    return !finite || Abs(sim.data.qpos[1]) > kMaxAngle;
  }

  ROLLOUTS_HD void Observe(const Config&, const auto& sim, auto& obs) const {
    obs.Put(sim.data.qpos, sim.model.nq);
    obs.Put(sim.data.qvel, sim.model.nv);
  }
};

using InvertedPendulum = MujocoEnv<InvertedPendulumTask>;

}  // namespace rollouts
