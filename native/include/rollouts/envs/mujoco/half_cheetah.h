// SPDX-License-Identifier: Apache-2.0
// HalfCheetah-v5 of Gymnasium (half_cheetah_v5.py): two legs in a plane run in the direction of x.
#pragma once

#include "rollouts/envs/mujoco/task.h"

namespace rollouts {

struct HalfCheetahTask {
  static constexpr ModelFile kModel{"half_cheetah.xml", 5};
  struct Config {
    double forward_reward_weight = 1;  // reward per m/s forwards
    double ctrl_cost_weight = 0.1;  // cost of the sum of squared actions
    double reset_noise_scale = 0.1;  // scale of the noise that is added to the model's own start
    bool exclude_current_positions_from_observation = true;  // leaves out the place in the world
  };
  static constexpr InfoSpec kInfos[] = {
      {"x_position"}, {"x_velocity"}, {"reward_forward"}, {"reward_ctrl"}};
  static constexpr ModelNeeds kNeeds{};
  static constexpr DataArrays kReads = 0;
  static constexpr std::int32_t kSubstepNs = 5'000;
  double before[2] = {};  // x

  HalfCheetahTask(const Config&, const auto&) {}

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("forward_reward_weight", config.forward_reward_weight);
    visit("ctrl_cost_weight", config.ctrl_cost_weight);
    visit("reset_noise_scale", config.reset_noise_scale);
    visit("exclude_current_positions_from_observation",
          config.exclude_current_positions_from_observation);
  }
  ROLLOUTS_HD static bool ContactForces(const Config&) { return false; }

  ROLLOUTS_HD void DrawStart(const Config& config, const auto& model, Rng& rng, double* qpos,
                             double* qvel) const {
    mujoco::AddUniform(rng, config.reset_noise_scale, qpos, model.nq);
    mujoco::AddNormal(rng, config.reset_noise_scale, qvel, model.nv);
  }

  ROLLOUTS_HD void AfterReset(const Config&, const auto& sim, auto& infos) {
    before[0] = sim.data.qpos[0];
    infos.Put(before[0]);
  }

  ROLLOUTS_HD StepResult AfterStep(const Config& config, const auto& sim, const float* action,
                                   auto& infos) {
    const double x = sim.data.qpos[0];
    const double x_velocity = (x - before[0]) / sim.dt;
    before[0] = x;
    const double forward_reward = config.forward_reward_weight * x_velocity;
    const double ctrl_cost = mujoco::ActionCost(config.ctrl_cost_weight, action, sim.model.nu);
    infos.Put(x);
    infos.Put(x_velocity);
    infos.Put(forward_reward);
    infos.Put(-ctrl_cost);
    return StepResult::Of(forward_reward - ctrl_cost, false);
  }

  ROLLOUTS_HD void Observe(const Config& config, const auto& sim, auto& obs) const {
    const std::int32_t skipped = config.exclude_current_positions_from_observation ? 1 : 0;
    obs.Put(sim.data.qpos + skipped, sim.model.nq - skipped);
    obs.Put(sim.data.qvel, sim.model.nv);
  }
};

using HalfCheetah = MujocoEnv<HalfCheetahTask>;

}  // namespace rollouts
