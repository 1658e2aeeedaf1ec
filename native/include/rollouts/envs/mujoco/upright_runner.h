// SPDX-License-Identifier: Apache-2.0
// The parts that Hopper and Walker2d have in common: legs in a plane that run in the direction of
// x, while height and angle have to stay in their ranges.
#pragma once

#include "rollouts/envs/mujoco/task.h"

namespace rollouts {

// `Rules` has Config, kModel, kSubstepNs and IsHealthy(config, sim).
template <typename Rules>
struct UprightRunnerTask {
  using Config = typename Rules::Config;
  static constexpr ModelFile kModel = Rules::kModel;
  static constexpr InfoSpec kInfos[] = {{"x_position"},     {"z_distance_from_origin"},
                                        {"x_velocity"},     {"reward_forward"},
                                        {"reward_ctrl"},    {"reward_survive"}};
  static constexpr ModelNeeds kNeeds{.nq = 3, .nv = 1};
  static constexpr DataArrays kReads = 0;
  static constexpr std::int32_t kSubstepNs = Rules::kSubstepNs;
  double before[2] = {};  // x

  UprightRunnerTask(const Config&, const auto&) {}

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("forward_reward_weight", config.forward_reward_weight);
    visit("ctrl_cost_weight", config.ctrl_cost_weight);
    visit("healthy_reward", config.healthy_reward);
    visit("terminate_when_unhealthy", config.terminate_when_unhealthy);
    visit("reset_noise_scale", config.reset_noise_scale);
    visit("exclude_current_positions_from_observation",
          config.exclude_current_positions_from_observation);
    Rules::VisitHealthyRanges(config, visit);
  }
  ROLLOUTS_HD static bool ContactForces(const Config&) { return false; }

  ROLLOUTS_HD void DrawStart(const Config& config, const auto& model, Rng& rng, double* qpos,
                             double* qvel) const {
    mujoco::AddUniform(rng, config.reset_noise_scale, qpos, model.nq);
    mujoco::AddUniform(rng, config.reset_noise_scale, qvel, model.nv);
  }

  ROLLOUTS_HD void AfterReset(const Config&, const auto& sim, auto& infos) {
    before[0] = sim.data.qpos[0];
    PutPosition(sim, infos);
  }

  ROLLOUTS_HD StepResult AfterStep(const Config& config, const auto& sim, const float* action,
                                   auto& infos) {
    const double x = sim.data.qpos[0];
    const double x_velocity = (x - before[0]) / sim.dt;
    before[0] = x;
    const bool healthy = Rules::IsHealthy(config, sim);
    const double forward_reward = config.forward_reward_weight * x_velocity;
    const double healthy_reward = healthy * config.healthy_reward;
    const double ctrl_cost = mujoco::ActionCost(config.ctrl_cost_weight, action, sim.model.nu);
    PutPosition(sim, infos);
    infos.Put(x_velocity);
    infos.Put(forward_reward);
    infos.Put(-ctrl_cost);
    infos.Put(healthy_reward);
    return StepResult::Of((forward_reward + healthy_reward) - ctrl_cost,
                          !healthy && config.terminate_when_unhealthy);
  }

  ROLLOUTS_HD void Observe(const Config& config, const auto& sim, auto& obs) const {
    constexpr double kMaxSpeed = 10;  // in observations
    const std::int32_t skipped = config.exclude_current_positions_from_observation ? 1 : 0;
    obs.Put(sim.data.qpos + skipped, sim.model.nq - skipped);
    obs.PutClipped(sim.data.qvel, sim.model.nv, -kMaxSpeed, kMaxSpeed);
  }

 private:
  ROLLOUTS_HD static void PutPosition(const auto& sim, auto& infos) {
    infos.Put(sim.data.qpos[0]);
    infos.Put(sim.data.qpos[1] - sim.model.qpos0[1]);
  }
};

}  // namespace rollouts
