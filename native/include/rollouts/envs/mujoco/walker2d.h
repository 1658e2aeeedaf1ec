// SPDX-License-Identifier: Apache-2.0
// Walker2d-v5 of Gymnasium (walker2d_v5.py): two legs in a plane walk in the direction of x.
#pragma once

#include "rollouts/envs/mujoco/upright_runner.h"

namespace rollouts {

struct Walker2dRules {
  struct Config : MujocoConfig {
    Config() {
      xml_file = "walker2d_v5.xml";
      frame_skip = 4;
    }
    double forward_reward_weight = 1;
    double ctrl_cost_weight = 1e-3;
    double healthy_reward = 1;
    bool terminate_when_unhealthy = true;
    double healthy_z_min = 0.8;
    double healthy_z_max = 2;
    double healthy_angle_min = -1;
    double healthy_angle_max = 1;
    double reset_noise_scale = 5e-3;
    bool exclude_current_positions_from_observation = true;
  };
  static constexpr std::int32_t kSubstepNs = 15'000;

  template <typename Visitor>
  static void VisitHealthyRanges(Config& config, Visitor& visit) {
    visit("healthy_z_min", config.healthy_z_min);
    visit("healthy_z_max", config.healthy_z_max);
    visit("healthy_angle_min", config.healthy_angle_min);
    visit("healthy_angle_max", config.healthy_angle_max);
  }

  static bool IsHealthy(const Config& config, const Simulation& sim) {
    return mujoco::Inside(sim.data.qpos[1], config.healthy_z_min, config.healthy_z_max) &&
           mujoco::Inside(sim.data.qpos[2], config.healthy_angle_min, config.healthy_angle_max);
  }
};

using Walker2d = MujocoEnv<UprightRunnerTask<Walker2dRules>>;

}  // namespace rollouts
