// SPDX-License-Identifier: Apache-2.0
// Swimmer-v5 of Gymnasium (swimmer_v5.py): a chain of three links swims in the direction of x.
#pragma once

#include "rollouts/envs/mujoco/task.h"

namespace rollouts {

struct SwimmerTask {
  static constexpr ModelFile kModel{"swimmer.xml", 4};
  struct Config {
    double forward_reward_weight = 1;  // reward per m/s forwards
    double ctrl_cost_weight = 1e-4;  // cost of the sum of squared actions
    double reset_noise_scale = 0.1;  // scale of the noise that is added to the model's own start
    bool exclude_current_positions_from_observation = true;  // leaves out the place in the world
  };
  static constexpr InfoSpec kInfos[] = {
      {"x_position"}, {"y_position"},     {"distance_from_origin"}, {"x_velocity"},
      {"y_velocity"}, {"reward_forward"}, {"reward_ctrl"}};
  static constexpr ModelNeeds kNeeds{.nq = 2, .nv = 1};
  static constexpr DataArrays kReads = 0;
  static constexpr std::int32_t kSubstepNs = 3'000;
  double before[2] = {};  // x and y

  SwimmerTask(const Config&, const auto&) {}

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
    mujoco::AddUniform(rng, config.reset_noise_scale, qvel, model.nv);
  }

  ROLLOUTS_HD void AfterReset(const Config&, const auto& sim, auto& infos) {
    mujoco::CopyPair(sim.data.qpos, before);
    PutPosition(sim, infos);
  }

  ROLLOUTS_HD StepResult AfterStep(const Config& config, const auto& sim, const float* action,
                                   auto& infos) {
    const double x_velocity = (sim.data.qpos[0] - before[0]) / sim.dt;
    const double y_velocity = (sim.data.qpos[1] - before[1]) / sim.dt;
    mujoco::CopyPair(sim.data.qpos, before);
    const double forward_reward = config.forward_reward_weight * x_velocity;
    const double ctrl_cost = mujoco::ActionCost(config.ctrl_cost_weight, action, sim.model.nu);
    PutPosition(sim, infos);
    infos.Put(x_velocity);
    infos.Put(y_velocity);
    infos.Put(forward_reward);
    infos.Put(-ctrl_cost);
    return StepResult::Of(forward_reward - ctrl_cost, false);
  }

  ROLLOUTS_HD void Observe(const Config& config, const auto& sim, auto& obs) const {
    const std::int32_t skipped = config.exclude_current_positions_from_observation ? 2 : 0;
    obs.Put(sim.data.qpos + skipped, sim.model.nq - skipped);
    obs.Put(sim.data.qvel, sim.model.nv);
  }

 private:
  ROLLOUTS_HD static void PutPosition(const auto& sim, auto& infos) {
    infos.Put(sim.data.qpos[0]);
    infos.Put(sim.data.qpos[1]);
    infos.Put(mujoco::Norm(sim.data.qpos, 2));
  }
};

using Swimmer = MujocoEnv<SwimmerTask>;

}  // namespace rollouts
