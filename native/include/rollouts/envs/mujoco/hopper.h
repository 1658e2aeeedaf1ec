// SPDX-License-Identifier: Apache-2.0
// Hopper-v5 of Gymnasium (hopper_v5.py): one leg hops in the direction of x.
#pragma once

#include "rollouts/envs/mujoco/upright_runner.h"

namespace rollouts {

struct HopperRules {
  static constexpr ModelFile kModel{"hopper.xml", 4};
  struct Config {
    double forward_reward_weight = 1;  // reward per m/s forwards
    double ctrl_cost_weight = 1e-3;  // cost of the sum of squared actions
    double healthy_reward = 1;  // reward of each step in which it is healthy
    bool terminate_when_unhealthy = true;  // ends an episode that leaves the healthy ranges
    double healthy_state_min = -100;  // lowest healthy value of the other positions and velocities
    double healthy_state_max = 100;  // greatest healthy value of the other positions and velocities
    double healthy_z_min = 0.7;  // m; lowest healthy height
    double healthy_z_max = kInfinity;  // m; greatest healthy height
    double healthy_angle_min = -0.2;  // rad; least healthy angle of the body
    double healthy_angle_max = 0.2;  // rad; greatest healthy angle of the body
    double reset_noise_scale = 5e-3;  // scale of the noise that is added to the model's own start
    bool exclude_current_positions_from_observation = true;  // leaves out the place in the world
  };
  static constexpr std::int32_t kSubstepNs = 12'000;

  template <typename Visitor>
  static void VisitHealthyRanges(Config& config, Visitor& visit) {
    visit("healthy_state_min", config.healthy_state_min);
    visit("healthy_state_max", config.healthy_state_max);
    visit("healthy_z_min", config.healthy_z_min);
    visit("healthy_z_max", config.healthy_z_max);
    visit("healthy_angle_min", config.healthy_angle_min);
    visit("healthy_angle_max", config.healthy_angle_max);
  }

  ROLLOUTS_HD static bool IsHealthy(const Config& config, const auto& sim) {
    const auto inside = [&](double value) {
      return mujoco::Inside(value, config.healthy_state_min, config.healthy_state_max);
    };
    // positions and velocities without x and z
    for (std::int32_t i = 2; i < sim.model.nq; ++i) {
      if (!inside(sim.data.qpos[i])) return false;
    }
    for (std::int32_t i = 0; i < sim.model.nv; ++i) {
      if (!inside(sim.data.qvel[i])) return false;
    }
    return mujoco::Inside(sim.data.qpos[1], config.healthy_z_min, config.healthy_z_max) &&
           mujoco::Inside(sim.data.qpos[2], config.healthy_angle_min, config.healthy_angle_max);
  }
};

using Hopper = MujocoEnv<UprightRunnerTask<HopperRules>>;

}  // namespace rollouts
