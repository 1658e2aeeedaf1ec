// SPDX-License-Identifier: Apache-2.0
// Ant-v5 of Gymnasium (ant_v5.py): four legs run in the direction of x.
#pragma once

#include "rollouts/envs/mujoco/task.h"

namespace rollouts {

struct AntTask {
  static constexpr ModelFile kModel{"ant.xml", 5};
  struct Config {
    double forward_reward_weight = 1;  // reward per m/s forwards
    double ctrl_cost_weight = 0.5;  // cost of the sum of squared actions
    double contact_cost_weight = 5e-4;  // cost of the sum of squared contact forces
    double healthy_reward = 1;  // reward of each step in which it is healthy
    ShortText main_body = "1";  // the body whose speed counts: its number or name
    bool terminate_when_unhealthy = true;  // ends an episode that leaves the healthy ranges
    double healthy_z_min = 0.2;  // m; lowest healthy height of the torso
    double healthy_z_max = 1;  // m; greatest healthy height of the torso
    double contact_force_min = -1;  // contact forces below it are clipped to it
    double contact_force_max = 1;  // contact forces above it are clipped to it
    double reset_noise_scale = 0.1;  // scale of the noise that is added to the model's own start
    bool exclude_current_positions_from_observation = true;  // leaves out the place in the world
    bool include_cfrc_ext_in_observation = true;  // contact forces on the bodies
  };
  static constexpr InfoSpec kInfos[] = {
      {"x_position"},     {"y_position"},  {"distance_from_origin"},
      {"x_velocity"},     {"y_velocity"},  {"reward_forward"},
      {"reward_ctrl"},    {"reward_contact"}, {"reward_survive"}};
  static constexpr ModelNeeds kNeeds{.nq = 3, .nv = 1};
  static constexpr DataArrays kReads = kXpos;
  static constexpr std::int32_t kSubstepNs = 35'000;
  double before[2] = {};  // position of the main body
  std::int32_t main_body;

  AntTask(const Config& config, const auto& model)
      : main_body(BodyByNumberOrName(model, "main_body", config.main_body.chars)) {}

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("forward_reward_weight", config.forward_reward_weight);
    visit("ctrl_cost_weight", config.ctrl_cost_weight);
    visit("contact_cost_weight", config.contact_cost_weight);
    visit("healthy_reward", config.healthy_reward);
    visit("main_body", config.main_body);
    visit("terminate_when_unhealthy", config.terminate_when_unhealthy);
    visit("healthy_z_min", config.healthy_z_min);
    visit("healthy_z_max", config.healthy_z_max);
    visit("contact_force_min", config.contact_force_min);
    visit("contact_force_max", config.contact_force_max);
    visit("reset_noise_scale", config.reset_noise_scale);
    visit("exclude_current_positions_from_observation",
          config.exclude_current_positions_from_observation);
    visit("include_cfrc_ext_in_observation", config.include_cfrc_ext_in_observation);
  }
  ROLLOUTS_HD static bool ContactForces(const Config& config) {
    return config.include_cfrc_ext_in_observation || config.contact_cost_weight != 0;
  }

  ROLLOUTS_HD void DrawStart(const Config& config, const auto& model, Rng& rng, double* qpos,
                             double* qvel) const {
    mujoco::AddUniform(rng, config.reset_noise_scale, qpos, model.nq);
    mujoco::AddNormal(rng, config.reset_noise_scale, qvel, model.nv);
  }

  ROLLOUTS_HD void AfterReset(const Config&, const auto& sim, auto& infos) {
    mujoco::CopyPair(MainPosition(sim), before);
    PutPosition(sim, infos);
  }

  ROLLOUTS_HD StepResult AfterStep(const Config& config, const auto& sim, const float* action,
                                   auto& infos) {
    const auto* const after = MainPosition(sim);
    const double x_velocity = (after[0] - before[0]) / sim.dt;
    const double y_velocity = (after[1] - before[1]) / sim.dt;
    mujoco::CopyPair(after, before);

    const bool healthy = IsHealthy(config, sim);
    const double forward_reward = x_velocity * config.forward_reward_weight;
    const double healthy_reward = healthy * config.healthy_reward;
    const double ctrl_cost =
        mujoco::ActionCost(config.ctrl_cost_weight, action, sim.model.nu);
    const double contact_cost = ContactCost(config, sim);
    const double reward = (forward_reward + healthy_reward) - (ctrl_cost + contact_cost);

    PutPosition(sim, infos);
    infos.Put(x_velocity);
    infos.Put(y_velocity);
    infos.Put(forward_reward);
    infos.Put(-ctrl_cost);
    infos.Put(-contact_cost);
    infos.Put(healthy_reward);
    return StepResult::Of(reward, !healthy && config.terminate_when_unhealthy);
  }

  ROLLOUTS_HD void Observe(const Config& config, const auto& sim, auto& obs) const {
    const std::int32_t skipped = config.exclude_current_positions_from_observation ? 2 : 0;
    obs.Put(sim.data.qpos + skipped, sim.model.nq - skipped);
    obs.Put(sim.data.qvel, sim.model.nv);
    if (!config.include_cfrc_ext_in_observation) return;
    obs.PutClipped(sim.data.cfrc_ext + 6, 6 * (sim.model.nbody - 1), config.contact_force_min,
                   config.contact_force_max);
  }

  ROLLOUTS_HD auto MainPosition(const auto& sim) const { return sim.data.xpos + 3 * main_body; }

  ROLLOUTS_HD static bool IsHealthy(const Config& config, const auto& sim) {
    const double z = sim.data.qpos[2];
    return mujoco::AllFinite(sim.data.qpos, sim.model.nq) &&
           mujoco::AllFinite(sim.data.qvel, sim.model.nv) && config.healthy_z_min <= z &&
           z <= config.healthy_z_max;
  }

  ROLLOUTS_HD static double ContactCost(const Config& config, const auto& sim) {
    const auto squared = [&](std::int32_t i) {
      const double force = sim.data.cfrc_ext[i];
      const double clipped = Clip(force, config.contact_force_min, config.contact_force_max);
      return clipped * clipped;
    };
    return config.contact_cost_weight *
           mujoco::PairwiseSum<double>(squared, 0, 6 * sim.model.nbody);
  }

 private:
  ROLLOUTS_HD static void PutPosition(const auto& sim, auto& infos) {
    infos.Put(sim.data.qpos[0]);
    infos.Put(sim.data.qpos[1]);
    infos.Put(mujoco::Norm(sim.data.qpos, 2));
  }
};

using Ant = MujocoEnv<AntTask>;

}  // namespace rollouts
