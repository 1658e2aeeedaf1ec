// SPDX-License-Identifier: Apache-2.0
// Reacher-v4, Pusher-v4, InvertedPendulum-v4 and InvertedDoublePendulum-v4 of Gymnasium
// (..._v4.py): their differences from v5. None has options or reports infos at reset.
#pragma once

#include "rollouts/envs/mujoco/inverted_double_pendulum.h"
#include "rollouts/envs/mujoco/inverted_pendulum.h"
#include "rollouts/envs/mujoco/pusher.h"
#include "rollouts/envs/mujoco/reacher.h"

namespace rollouts {

// The reward is computed from the state before the step; observations also have a height.
struct ReacherV4Task : ReacherTask {
  using ReacherTask::ReacherTask;

  template <typename Visitor>
  static void VisitConfig(Config&, Visitor&) {}

  ROLLOUTS_HD void AfterReset(const Config&, const auto& sim, auto&) {
    before[0] = TargetDistance(sim);
  }

  ROLLOUTS_HD StepResult AfterStep(const Config&, const auto& sim, const float* action,
                                   auto& infos) {
    const double reward_dist = -before[0];
    const double reward_ctrl = -mujoco::SumOfSquares(action, sim.model.nu);
    before[0] = TargetDistance(sim);
    infos.Put(reward_dist);
    infos.Put(reward_ctrl);
    return StepResult::Of(reward_dist + reward_ctrl, false);
  }

  ROLLOUTS_HD void Observe(const Config& config, const auto& sim, auto& obs) const {
    ReacherTask::Observe(config, sim, obs);
    obs.Put(sim.data.xpos[3 * fingertip + 2] - sim.data.xpos[3 * target + 2]);
  }

 private:
  ROLLOUTS_HD double TargetDistance(const auto& sim) const {
    return mujoco::Distance(sim.data.xpos + 3 * fingertip, sim.data.xpos + 3 * target);
  }
};

// The reward is computed from the state before the step, the infos report its parts without their
// weights, and the cylinder is lighter.
struct PusherV4Task : PusherTask {
  static constexpr ModelFile kModel{"pusher.xml", 5};
  static constexpr InfoSpec kInfos[] = {{"reward_dist"}, {"reward_ctrl"}};
  using PusherTask::PusherTask;

  template <typename Visitor>
  static void VisitConfig(Config&, Visitor&) {}

  ROLLOUTS_HD void AfterReset(const Config&, const auto& sim, auto&) { Remember(sim); }

  ROLLOUTS_HD StepResult AfterStep(const Config&, const auto& sim, const float* action,
                                   auto& infos) {
    const double reward_near = -before[0];
    const double reward_dist = -before[1];
    // float32, because the action is
    const float reward_ctrl = -mujoco::SumOfSquares(action, sim.model.nu);
    Remember(sim);
    infos.Put(reward_dist);
    infos.Put(reward_ctrl);
    return StepResult::Of(reward_dist + 0.1f * reward_ctrl + 0.5 * reward_near, false);
  }

 private:
  ROLLOUTS_HD void Remember(const auto& sim) {
    const auto* const at = sim.data.xpos + 3 * object;
    before[0] = mujoco::Distance(at, sim.data.xpos + 3 * tips_arm);
    before[1] = mujoco::Distance(at, sim.data.xpos + 3 * goal);
  }
};

// The step of a fall earns the same reward as any other; there are no infos.
struct InvertedPendulumV4Task : InvertedPendulumTask {
  static constexpr NoInfos kInfos{};
  using InvertedPendulumTask::InvertedPendulumTask;

  template <typename Visitor>
  static void VisitConfig(Config&, Visitor&) {}

  ROLLOUTS_HD StepResult AfterStep(const Config&, const auto& sim, const float*, auto&) {
    return StepResult::Of(1, HasFallen(sim));
  }
};

// The step of a fall earns the same reward as any other, observations have the forces on all
// joints, and there are no infos.
struct InvertedDoublePendulumV4Task : InvertedDoublePendulumTask {
  static constexpr NoInfos kInfos{};
  using InvertedDoublePendulumTask::InvertedDoublePendulumTask;

  template <typename Visitor>
  static void VisitConfig(Config&, Visitor&) {}

  ROLLOUTS_HD StepResult AfterStep(const Config& config, const auto& sim, const float*, auto&) {
    const Fate fate = FateOf(sim);
    return StepResult::Of(config.healthy_reward - fate.distance_penalty - fate.velocity_penalty,
                          fate.terminated);
  }

  ROLLOUTS_HD void Observe(const Config& config, const auto& sim, auto& obs) const {
    InvertedDoublePendulumTask::Observe(config, sim, obs);
    obs.PutClipped(sim.data.qfrc_constraint + 1, sim.model.nv - 1, -kMost, kMost);
  }
};

using ReacherV4 = MujocoEnv<ReacherV4Task>;
using PusherV4 = MujocoEnv<PusherV4Task>;
using InvertedPendulumV4 = MujocoEnv<InvertedPendulumV4Task>;
using InvertedDoublePendulumV4 = MujocoEnv<InvertedDoublePendulumV4Task>;

}  // namespace rollouts
