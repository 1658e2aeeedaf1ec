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
    double forward_reward_weight = 1;
    double ctrl_cost_weight = 1e-3;
    double healthy_reward = 1;
    bool terminate_when_unhealthy = true;
    double healthy_state_min = -100;
    double healthy_state_max = 100;
    double healthy_z_min = 0.7;
    double healthy_z_max = kInfinity;
    double healthy_angle_min = -0.2;
    double healthy_angle_max = 0.2;
    double reset_noise_scale = 5e-3;
    bool exclude_current_positions_from_observation = true;
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
