// SPDX-License-Identifier: Apache-2.0
// Walker2d-v5 of Gymnasium (walker2d_v5.py): two legs in a plane walk in the direction of x.
#pragma once

#include "rollouts/envs/mujoco/upright_runner.h"

namespace rollouts {

struct Walker2dRules {
  static constexpr ModelFile kModel{"walker2d_v5.xml", 4};
  struct Config {
    double forward_reward_weight = 1;  // reward per m/s forwards
    double ctrl_cost_weight = 1e-3;  // cost of the sum of squared actions
    double healthy_reward = 1;  // reward of each step in which it is healthy
    bool terminate_when_unhealthy = true;  // ends an episode that leaves the healthy ranges
    double healthy_z_min = 0.8;  // m; lowest healthy height
    double healthy_z_max = 2;  // m; greatest healthy height
    double healthy_angle_min = -1;  // rad; least healthy angle of the body
    double healthy_angle_max = 1;  // rad; greatest healthy angle of the body
    double reset_noise_scale = 5e-3;  // scale of the noise that is added to the model's own start
    bool exclude_current_positions_from_observation = true;  // leaves out the place in the world
  };
  static constexpr std::int32_t kSubstepNs = 15'000;

  template <typename Visitor>
  static void VisitHealthyRanges(Config& config, Visitor& visit) {
    visit("healthy_z_min", config.healthy_z_min);
    visit("healthy_z_max", config.healthy_z_max);
    visit("healthy_angle_min", config.healthy_angle_min);
    visit("healthy_angle_max", config.healthy_angle_max);
  }

  ROLLOUTS_HD static bool IsHealthy(const Config& config, const auto& sim) {
    return mujoco::Inside(sim.data.qpos[1], config.healthy_z_min, config.healthy_z_max) &&
           mujoco::Inside(sim.data.qpos[2], config.healthy_angle_min, config.healthy_angle_max);
  }
};

using Walker2d = MujocoEnv<UprightRunnerTask<Walker2dRules>>;

}  // namespace rollouts
