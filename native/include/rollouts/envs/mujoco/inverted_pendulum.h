// SPDX-License-Identifier: Apache-2.0
// InvertedPendulum-v5 of Gymnasium (inverted_pendulum_v5.py): keep a pole on a cart upright.
#pragma once

#include <cmath>

#include "rollouts/envs/mujoco/mujoco_env.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts {

struct InvertedPendulumTask {
  struct Config : MujocoConfig {
    Config() {
      xml_file = "inverted_pendulum.xml";
      frame_skip = 2;
    }
    double reset_noise_scale = 0.01;  // how far an episode's start is drawn from the model's own
  };
  static constexpr InfoSpec kInfos[] = {{"reward_survive"}};
  static constexpr ModelNeeds kNeeds{.nq = 2, .nv = 2};
  static constexpr DataArrays kReads = 0;
  static constexpr std::int32_t kSubstepNs = 2'000;
  double before[2] = {};

  InvertedPendulumTask(const Config&, const PhysicsModel&) {}

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("reset_noise_scale", config.reset_noise_scale);
  }
  static bool ContactForces(const Config&) { return false; }

  void DrawStart(const Config& config, const ModelView& model, Rng& rng, double* qpos,
                 double* qvel) const {
    mujoco::AddUniform(rng, config.reset_noise_scale, qpos, model.nq);
    mujoco::AddUniform(rng, config.reset_noise_scale, qvel, model.nv);
  }
  void AfterReset(const Config&, const Simulation&, InfoWriter&) {}

  StepResult AfterStep(const Config&, const Simulation& sim, const float*, InfoWriter& infos) {
    const bool terminated = HasFallen(sim);
    const double reward = terminated ? 0 : 1;
    infos.Put(reward);
    return StepResult::Of(reward, terminated);
  }

  static bool HasFallen(const Simulation& sim) {
    constexpr double kMaxAngle = 0.2;  // radians from upright
    const bool finite = mujoco::AllFinite(sim.data.qpos, sim.model.nq) &&
                        mujoco::AllFinite(sim.data.qvel, sim.model.nv);
    return !finite || std::fabs(sim.data.qpos[1]) > kMaxAngle;
  }

  void Observe(const Config&, const Simulation& sim, ObservationWriter& obs) const {
    obs.Put(sim.data.qpos, sim.model.nq);
    obs.Put(sim.data.qvel, sim.model.nv);
  }
};

using InvertedPendulum = MujocoEnv<InvertedPendulumTask>;

}  // namespace rollouts
