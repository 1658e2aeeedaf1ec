// SPDX-License-Identifier: Apache-2.0
// Ant-v4, Humanoid-v4 and HumanoidStandup-v4 of Gymnasium (..._v4.py): their differences from v5.
// The step of a fall earns the healthy reward where it ends the episode, observations also have the
// world's rows, and a reset reports no infos.
#pragma once

#include "rollouts/envs/mujoco/ant.h"
#include "rollouts/envs/mujoco/humanoid.h"
#include "rollouts/envs/mujoco/humanoid_standup.h"

namespace rollouts {

struct AntV4Task : AntTask {
  struct Config : AntTask::Config {
    Config() { main_body = "torso"; }
    bool use_contact_forces = false;  // contact forces count in observations and rewards
  };
  static constexpr InfoSpec kInfos[] = {
      {"reward_forward"}, {"reward_ctrl"},          {"reward_survive"},
      {"x_position"},     {"y_position"},           {"distance_from_origin"},
      {"x_velocity"},     {"y_velocity"},           {"forward_reward"}};
  using AntTask::AntTask;

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("ctrl_cost_weight", config.ctrl_cost_weight);
    visit("use_contact_forces", config.use_contact_forces);
    visit("contact_cost_weight", config.contact_cost_weight);
    visit("healthy_reward", config.healthy_reward);
    visit("terminate_when_unhealthy", config.terminate_when_unhealthy);
    visit("healthy_z_min", config.healthy_z_min);
    visit("healthy_z_max", config.healthy_z_max);
    visit("contact_force_min", config.contact_force_min);
    visit("contact_force_max", config.contact_force_max);
    visit("reset_noise_scale", config.reset_noise_scale);
    visit("exclude_current_positions_from_observation",
          config.exclude_current_positions_from_observation);
  }
  ROLLOUTS_HD static bool ContactForces(const Config& config) { return config.use_contact_forces; }

  ROLLOUTS_HD void AfterReset(const Config&, const auto& sim, auto&) {
    mujoco::CopyPair(MainPosition(sim), before);
  }

  ROLLOUTS_HD StepResult AfterStep(const Config& config, const auto& sim, const float* action,
                                   auto& infos) {
    const auto* const xy = MainPosition(sim);
    const double x_velocity = (xy[0] - before[0]) / sim.dt;
    const double y_velocity = (xy[1] - before[1]) / sim.dt;
    mujoco::CopyPair(xy, before);
    const bool healthy = IsHealthy(config, sim);
    const double healthy_reward =
        (healthy || config.terminate_when_unhealthy) * config.healthy_reward;
    const double ctrl_cost = mujoco::ActionCost(config.ctrl_cost_weight, action, sim.model.nu);
    const double contact_cost = config.use_contact_forces ? ContactCost(config, sim) : 0;

    infos.Put(x_velocity);
    // Gymnasium overwrites one cost with the other
    infos.Put(config.use_contact_forces ? -contact_cost : -ctrl_cost);
    infos.Put(healthy_reward);
    infos.Put(xy, 2);
    infos.Put(mujoco::Norm(xy, 2));
    infos.Put(x_velocity);
    infos.Put(y_velocity);
    infos.Put(x_velocity);
    return StepResult::Of((x_velocity + healthy_reward) - (ctrl_cost + contact_cost),
                          !healthy && config.terminate_when_unhealthy);
  }

  ROLLOUTS_HD void Observe(const Config& config, const auto& sim, auto& obs) const {
    const std::int32_t skipped = config.exclude_current_positions_from_observation ? 2 : 0;
    obs.Put(sim.data.qpos + skipped, sim.model.nq - skipped);
    obs.Put(sim.data.qvel, sim.model.nv);
    if (!config.use_contact_forces) return;
    obs.PutClipped(sim.data.cfrc_ext, 6 * sim.model.nbody, config.contact_force_min,
                   config.contact_force_max);
  }
};

namespace humanoid {

ROLLOUTS_HD inline void ObserveV4(const HumanoidConfig& config, const auto& sim, auto& obs) {
  const auto& model = sim.model;
  const std::int32_t skipped = config.exclude_current_positions_from_observation ? 2 : 0;
  obs.Put(sim.data.qpos + skipped, model.nq - skipped);
  obs.Put(sim.data.qvel, model.nv);
  obs.Put(sim.data.cinert, 10 * model.nbody);
  obs.Put(sim.data.cvel, 6 * model.nbody);
  obs.Put(sim.data.qfrc_actuator, model.nv);
  obs.Put(sim.data.cfrc_ext, 6 * model.nbody);
}

}  // namespace humanoid

struct HumanoidV4Task : HumanoidTask {
  static constexpr InfoSpec kInfos[] = {
      {"reward_linvel"}, {"reward_quadctrl"},      {"reward_alive"},
      {"x_position"},    {"y_position"},           {"distance_from_origin"},
      {"x_velocity"},    {"y_velocity"},           {"forward_reward"}};
  using HumanoidTask::HumanoidTask;

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("forward_reward_weight", config.forward_reward_weight);
    visit("ctrl_cost_weight", config.ctrl_cost_weight);
    visit("healthy_reward", config.healthy_reward);
    visit("terminate_when_unhealthy", config.terminate_when_unhealthy);
    visit("healthy_z_min", config.healthy_z_min);
    visit("healthy_z_max", config.healthy_z_max);
    visit("reset_noise_scale", config.reset_noise_scale);
    visit("exclude_current_positions_from_observation",
          config.exclude_current_positions_from_observation);
  }
  ROLLOUTS_HD static bool ContactForces(const Config&) { return true; }

  ROLLOUTS_HD void AfterReset(const Config&, const auto& sim, auto&) { MassCenter(sim, before); }

  ROLLOUTS_HD StepResult AfterStep(const Config& config, const auto& sim, const float*,
                                   auto& infos) {
    double after[2];
    MassCenter(sim, after);
    const double x_velocity = (after[0] - before[0]) / sim.dt;
    const double y_velocity = (after[1] - before[1]) / sim.dt;
    mujoco::CopyPair(after, before);
    const bool healthy =
        mujoco::Inside(sim.data.qpos[2], config.healthy_z_min, config.healthy_z_max);
    const double forward_reward = config.forward_reward_weight * x_velocity;
    const double healthy_reward =
        (healthy || config.terminate_when_unhealthy) * config.healthy_reward;
    const double ctrl_cost = humanoid::ControlCost(sim, config.ctrl_cost_weight);
    infos.Put(forward_reward);
    infos.Put(-ctrl_cost);
    infos.Put(healthy_reward);
    infos.Put(after, 2);
    infos.Put(mujoco::Norm(after, 2));
    infos.Put(x_velocity);
    infos.Put(y_velocity);
    infos.Put(forward_reward);
    return StepResult::Of((forward_reward + healthy_reward) - ctrl_cost,
                          !healthy && config.terminate_when_unhealthy);
  }

  ROLLOUTS_HD void Observe(const Config& config, const auto& sim, auto& obs) const {
    humanoid::ObserveV4(config, sim, obs);
  }
};

// No options.
struct HumanoidStandupV4Task : HumanoidStandupTask {
  static constexpr InfoSpec kInfos[] = {
      {"reward_linup"}, {"reward_quadctrl"}, {"reward_impact"}};
  using HumanoidStandupTask::HumanoidStandupTask;

  template <typename Visitor>
  static void VisitConfig(Config&, Visitor&) {}
  ROLLOUTS_HD static bool ContactForces(const Config&) { return true; }

  ROLLOUTS_HD void AfterReset(const Config&, const auto&, auto&) {}

  ROLLOUTS_HD StepResult AfterStep(const Config& config, const auto& sim, const float*,
                                   auto& infos) {
    return PutCosts(config, sim, infos);
  }

  ROLLOUTS_HD void Observe(const Config& config, const auto& sim, auto& obs) const {
    humanoid::ObserveV4(config, sim, obs);
  }
};

using AntV4 = MujocoEnv<AntV4Task>;
using HumanoidV4 = MujocoEnv<HumanoidV4Task>;
using HumanoidStandupV4 = MujocoEnv<HumanoidStandupV4Task>;

}  // namespace rollouts
