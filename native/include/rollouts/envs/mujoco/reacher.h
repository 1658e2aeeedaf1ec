// SPDX-License-Identifier: Apache-2.0
// Reacher-v5 of Gymnasium (reacher_v5.py): an arm in a plane reaches for a target.
#pragma once

#include "rollouts/envs/mujoco/task.h"

namespace rollouts {

struct ReacherTask {
  static constexpr ModelFile kModel{"reacher.xml", 2};
  struct Config {
    double reward_dist_weight = 1;  // cost of the distance from fingertip to target
    double reward_control_weight = 1;  // cost of the sum of squared actions
  };
  static constexpr InfoSpec kInfos[] = {{"reward_dist"}, {"reward_ctrl"}};
  static constexpr ModelNeeds kNeeds{.nq = 2, .nv = 2};
  static constexpr DataArrays kReads = kXpos;
  static constexpr std::int32_t kSubstepNs = 3'000;
  double before[2] = {};
  std::int32_t fingertip;
  std::int32_t target;

  ReacherTask(const Config&, const auto& model)
      : fingertip(model.BodyId("fingertip")), target(model.BodyId("target")) {}

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("reward_dist_weight", config.reward_dist_weight);
    visit("reward_control_weight", config.reward_control_weight);
  }
  ROLLOUTS_HD static bool ContactForces(const Config&) { return false; }

  // Draws a start. The target, whose coordinates are the last two positions, rests anywhere in a
  // disc.
  ROLLOUTS_HD void DrawStart(const Config&, const auto& model, Rng& rng, double* qpos,
                             double* qvel) const {
    constexpr double kReach = 0.2;  // metres
    mujoco::AddUniform(rng, 0.1, qpos, model.nq);
    double* const goal = qpos + model.nq - 2;
    do {
      goal[0] = rng.Uniform(-kReach, kReach);
      goal[1] = rng.Uniform(-kReach, kReach);
    } while (mujoco::Norm(goal, 2) >= kReach);
    mujoco::AddUniform(rng, 0.005, qvel, model.nv);
    for (std::int32_t i = model.nv - 2; i < model.nv; ++i) qvel[i] = 0;
  }
  ROLLOUTS_HD void AfterReset(const Config&, const auto&, auto&) {}

  ROLLOUTS_HD StepResult AfterStep(const Config& config, const auto& sim, const float* action,
                                   auto& infos) {
    const double distance =
        mujoco::Distance(sim.data.xpos + 3 * fingertip, sim.data.xpos + 3 * target);
    const double reward_dist = -distance * config.reward_dist_weight;
    const double reward_ctrl =
        -mujoco::ActionCost(config.reward_control_weight, action, sim.model.nu);
    infos.Put(reward_dist);
    infos.Put(reward_ctrl);
    return StepResult::Of(reward_dist + reward_ctrl, false);
  }

  ROLLOUTS_HD void Observe(const Config&, const auto& sim, auto& obs) const {
    const auto* const qpos = sim.data.qpos;
    for (std::int32_t i = 0; i < 2; ++i) obs.Put(LibraryCos(qpos[i]));
    for (std::int32_t i = 0; i < 2; ++i) obs.Put(LibrarySin(qpos[i]));
    obs.Put(qpos + 2, sim.model.nq - 2);
    obs.Put(sim.data.qvel, 2);
    for (std::int32_t i = 0; i < 2; ++i) {
      obs.Put(sim.data.xpos[3 * fingertip + i] - sim.data.xpos[3 * target + i]);
    }
  }
};

using Reacher = MujocoEnv<ReacherTask>;

}  // namespace rollouts
