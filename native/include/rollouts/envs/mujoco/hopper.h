// SPDX-License-Identifier: Apache-2.0
// Hopper-v5 of Gymnasium (hopper_v5.py): one leg hops in the direction of x.
#pragma once

#include <algorithm>

#include "rollouts/envs/mujoco/upright_runner.h"

namespace rollouts {

struct HopperRules {
  struct Config : MujocoConfig {
    Config() {
      xml_file = "hopper.xml";
      frame_skip = 4;
    }
    double forward_reward_weight = 1;  // reward per m/s forwards
    double ctrl_cost_weight = 1e-3;  // cost of the sum of squared actions
    double healthy_reward = 1;  // reward of each step in which it is healthy
    bool terminate_when_unhealthy = true;  // ends an episode out of the healthy ranges
    double healthy_state_min = -100;  // least of the other positions and velocities
    double healthy_state_max = 100;  // greatest of the other positions and velocities
    double healthy_z_min = 0.7;  // m; lowest healthy height
    double healthy_z_max = kInfinity;  // m; greatest healthy height
    double healthy_angle_min = -0.2;  // rad; least healthy angle of the body
    double healthy_angle_max = 0.2;  // rad; greatest healthy angle of the body
    double reset_noise_scale = 5e-3;  // how far an episode's start is drawn from the model's own
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

  static bool IsHealthy(const Config& config, const Simulation& sim) {
    const auto inside = [&](double value) {
      return mujoco::Inside(value, config.healthy_state_min, config.healthy_state_max);
    };
    // positions and velocities without x and z
    return std::all_of(sim.data.qpos + 2, sim.data.qpos + sim.model.nq, inside) &&
           std::all_of(sim.data.qvel, sim.data.qvel + sim.model.nv, inside) &&
           mujoco::Inside(sim.data.qpos[1], config.healthy_z_min, config.healthy_z_max) &&
           mujoco::Inside(sim.data.qpos[2], config.healthy_angle_min, config.healthy_angle_max);
  }
};

using Hopper = MujocoEnv<UprightRunnerTask<HopperRules>>;

}  // namespace rollouts
