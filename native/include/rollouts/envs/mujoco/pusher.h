// SPDX-License-Identifier: Apache-2.0
// Pusher-v5 of Gymnasium (pusher_v5.py): an arm pushes a cylinder to a goal.
#pragma once

#include "rollouts/envs/mujoco/task.h"

namespace rollouts {

struct PusherTask {
  static constexpr ModelFile kModel{"pusher_v5.xml", 5};
  struct Config {
    double reward_near_weight = 0.5;  // cost of the distance from arm to object
    double reward_dist_weight = 1;  // cost of the distance from object to goal
    double reward_control_weight = 0.1;  // cost of the sum of squared actions
  };
  static constexpr InfoSpec kInfos[] = {{"reward_dist"}, {"reward_ctrl"}, {"reward_near"}};
  static constexpr ModelNeeds kNeeds{.nq = 7, .nv = 7};
  static constexpr DataArrays kReads = kXpos;
  static constexpr std::int32_t kSubstepNs = 8'000;
  double before[2] = {};
  std::int32_t tips_arm;
  std::int32_t object;
  std::int32_t goal;

  PusherTask(const Config&, const auto& model)
      : tips_arm(model.BodyId("tips_arm")),
        object(model.BodyId("object")),
        goal(model.BodyId("goal")) {}

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("reward_near_weight", config.reward_near_weight);
    visit("reward_dist_weight", config.reward_dist_weight);
    visit("reward_control_weight", config.reward_control_weight);
  }
  ROLLOUTS_HD static bool ContactForces(const Config&) { return false; }

  // Draws a start. The last four positions are those of the cylinder and of the goal.
  ROLLOUTS_HD void DrawStart(const Config&, const auto& model, Rng& rng, double* qpos,
                             double* qvel) const {
    constexpr double kLeastDistance = 0.17;  // metres, from cylinder to goal at the origin
    double* const cylinder = qpos + model.nq - 4;
    do {
      cylinder[0] = rng.Uniform(-0.3, 0);
      cylinder[1] = rng.Uniform(-0.2, 0.2);
    } while (mujoco::Norm(cylinder, 2) <= kLeastDistance);
    for (std::int32_t i = model.nq - 2; i < model.nq; ++i) qpos[i] = 0;
    mujoco::AddUniform(rng, 0.005, qvel, model.nv);
    for (std::int32_t i = model.nv - 4; i < model.nv; ++i) qvel[i] = 0;
  }
  ROLLOUTS_HD void AfterReset(const Config&, const auto&, auto&) {}

  ROLLOUTS_HD StepResult AfterStep(const Config& config, const auto& sim, const float* action,
                                   auto& infos) {
    const auto* const at = sim.data.xpos + 3 * object;
    const double near = mujoco::Distance(at, sim.data.xpos + 3 * tips_arm);
    const double distance = mujoco::Distance(at, sim.data.xpos + 3 * goal);
    const double reward_near = -near * config.reward_near_weight;
    const double reward_dist = -distance * config.reward_dist_weight;
    const double reward_ctrl =
        -mujoco::ActionCost(config.reward_control_weight, action, sim.model.nu);
    infos.Put(reward_dist);
    infos.Put(reward_ctrl);
    infos.Put(reward_near);
    return StepResult::Of(reward_dist + reward_ctrl + reward_near, false);
  }

  ROLLOUTS_HD void Observe(const Config&, const auto& sim, auto& obs) const {
    obs.Put(sim.data.qpos, 7);
    obs.Put(sim.data.qvel, 7);
    const std::int32_t bodies[] = {tips_arm, object, goal};
    for (const std::int32_t body : bodies) obs.Put(sim.data.xpos + 3 * body, 3);
  }
};

using Pusher = MujocoEnv<PusherTask>;

}  // namespace rollouts
