// SPDX-License-Identifier: Apache-2.0
// Reacher-v5 of Gymnasium (reacher_v5.py): an arm in a plane reaches for a target.
#pragma once

#include <algorithm>
#include <cmath>

#include "rollouts/envs/mujoco/mujoco_env.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts {

struct ReacherTask {
  struct Config : MujocoConfig {
    Config() {
      xml_file = "reacher.xml";
      frame_skip = 2;
    }
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

  ReacherTask(const Config&, const PhysicsModel& model)
      : fingertip(model.BodyId("fingertip")), target(model.BodyId("target")) {}

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("reward_dist_weight", config.reward_dist_weight);
    visit("reward_control_weight", config.reward_control_weight);
  }
  static bool ContactForces(const Config&) { return false; }

  // The target, the last two positions, rests anywhere in a disc.
  void DrawStart(const Config&, const ModelView& model, Rng& rng, double* qpos,
                 double* qvel) const {
    constexpr double kReach = 0.2;  // metres
    mujoco::AddUniform(rng, 0.1, qpos, model.nq);
    double* const goal = qpos + model.nq - 2;
    do {
      goal[0] = rng.Uniform(-kReach, kReach);
      goal[1] = rng.Uniform(-kReach, kReach);
    } while (mujoco::Norm(goal, 2) >= kReach);
    mujoco::AddUniform(rng, 0.005, qvel, model.nv);
    std::fill_n(qvel + model.nv - 2, 2, 0.0);
  }
  void AfterReset(const Config&, const Simulation&, InfoWriter&) {}

  StepResult AfterStep(const Config& config, const Simulation& sim, const float* action,
                       InfoWriter& infos) {
    const double distance =
        mujoco::Distance(sim.data.xpos + 3 * fingertip, sim.data.xpos + 3 * target);
    const double reward_dist = -distance * config.reward_dist_weight;
    const double reward_ctrl =
        -mujoco::ActionCost(config.reward_control_weight, action, sim.model.nu);
    infos.Put(reward_dist);
    infos.Put(reward_ctrl);
    return StepResult::Of(reward_dist + reward_ctrl, false);
  }

  void Observe(const Config&, const Simulation& sim, ObservationWriter& obs) const {
    const double* qpos = sim.data.qpos;
    for (std::int32_t i = 0; i < 2; ++i) obs.Put(std::cos(qpos[i]));
    for (std::int32_t i = 0; i < 2; ++i) obs.Put(std::sin(qpos[i]));
    obs.Put(qpos + 2, sim.model.nq - 2);
    obs.Put(sim.data.qvel, 2);
    for (std::int32_t i = 0; i < 2; ++i) {
      obs.Put(sim.data.xpos[3 * fingertip + i] - sim.data.xpos[3 * target + i]);
    }
  }
};

using Reacher = MujocoEnv<ReacherTask>;

}  // namespace rollouts
