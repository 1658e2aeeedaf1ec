// SPDX-License-Identifier: Apache-2.0
// HalfCheetah-v4, Hopper-v4, Walker2d-v4 and Swimmer-v4 of Gymnasium (..._v4.py): their differences
// from v5. None reports infos at reset.
#pragma once

#include "rollouts/envs/mujoco/half_cheetah.h"
#include "rollouts/envs/mujoco/hopper.h"
#include "rollouts/envs/mujoco/swimmer.h"
#include "rollouts/envs/mujoco/walker2d.h"

namespace rollouts {

// Differs only in the name of an info.
struct HalfCheetahV4Task : HalfCheetahTask {
  static constexpr InfoSpec kInfos[] = {
      {"x_position"}, {"x_velocity"}, {"reward_run"}, {"reward_ctrl"}};
  using HalfCheetahTask::HalfCheetahTask;

  ROLLOUTS_HD void AfterReset(const Config&, const auto& sim, auto&) {
    before[0] = sim.data.qpos[0];
  }
};

// The step of a fall earns the healthy reward where it ends the episode; there are two infos.
template <typename Rules>
struct UprightRunnerV4Task : UprightRunnerTask<Rules> {
  using Base = UprightRunnerTask<Rules>;
  using Config = typename Rules::Config;
  static constexpr InfoSpec kInfos[] = {{"x_position"}, {"x_velocity"}};
  using Base::Base;
  using Base::before;

  ROLLOUTS_HD void AfterReset(const Config&, const auto& sim, auto&) {
    before[0] = sim.data.qpos[0];
  }

  ROLLOUTS_HD StepResult AfterStep(const Config& config, const auto& sim, const float* action,
                                   auto& infos) {
    const double x = sim.data.qpos[0];
    const double x_velocity = (x - before[0]) / sim.dt;
    before[0] = x;
    const bool healthy = Rules::IsHealthy(config, sim);
    const double healthy_reward =
        (healthy || config.terminate_when_unhealthy) * config.healthy_reward;
    const double ctrl_cost = mujoco::ActionCost(config.ctrl_cost_weight, action, sim.model.nu);
    infos.Put(x);
    infos.Put(x_velocity);
    return StepResult::Of((config.forward_reward_weight * x_velocity + healthy_reward) - ctrl_cost,
                          !healthy && config.terminate_when_unhealthy);
  }
};

// The friction of the feet differs from that in v5.
struct Walker2dV4Rules : Walker2dRules {
  static constexpr ModelFile kModel{"walker2d.xml", 4};
};

// Differs only in the names and order of infos.
struct SwimmerV4Task : SwimmerTask {
  static constexpr InfoSpec kInfos[] = {
      {"reward_fwd"},           {"reward_ctrl"}, {"x_position"}, {"y_position"},
      {"distance_from_origin"}, {"x_velocity"},  {"y_velocity"}, {"forward_reward"}};
  using SwimmerTask::SwimmerTask;

  ROLLOUTS_HD void AfterReset(const Config&, const auto& sim, auto&) {
    mujoco::CopyPair(sim.data.qpos, before);
  }

  ROLLOUTS_HD StepResult AfterStep(const Config& config, const auto& sim, const float* action,
                                   auto& infos) {
    const auto* const xy = sim.data.qpos;
    const double x_velocity = (xy[0] - before[0]) / sim.dt;
    const double y_velocity = (xy[1] - before[1]) / sim.dt;
    mujoco::CopyPair(xy, before);
    const double forward_reward = config.forward_reward_weight * x_velocity;
    const double ctrl_cost = mujoco::ActionCost(config.ctrl_cost_weight, action, sim.model.nu);
    infos.Put(forward_reward);
    infos.Put(-ctrl_cost);
    infos.Put(xy, 2);
    infos.Put(mujoco::Norm(xy, 2));
    infos.Put(x_velocity);
    infos.Put(y_velocity);
    infos.Put(forward_reward);
    return StepResult::Of(forward_reward - ctrl_cost, false);
  }
};

using HalfCheetahV4 = MujocoEnv<HalfCheetahV4Task>;
using HopperV4 = MujocoEnv<UprightRunnerV4Task<HopperRules>>;
using Walker2dV4 = MujocoEnv<UprightRunnerV4Task<Walker2dV4Rules>>;
using SwimmerV4 = MujocoEnv<SwimmerV4Task>;

}  // namespace rollouts
