// SPDX-License-Identifier: Apache-2.0
// Humanoid-v5 of Gymnasium (humanoid_v5.py): walk in the direction of x without falling.
#pragma once

#include "rollouts/envs/mujoco/humanoid_body.h"

namespace rollouts {

struct HumanoidTask {
  static constexpr ModelFile kModel{"humanoid.xml", 5};
  struct Config : HumanoidConfig {
    double forward_reward_weight = 1.25;  // reward per m/s forwards
    double ctrl_cost_weight = 0.1;  // cost of the sum of squared actions
    double contact_cost_weight = 5e-7;  // cost of the sum of squared contact forces
    double contact_cost_min = -kInfinity;  // least contact cost of a step
    double contact_cost_max = 10;  // greatest contact cost of a step
    double healthy_reward = 5;  // reward of each step in which it is healthy
    bool terminate_when_unhealthy = true;  // ends an episode that leaves the healthy ranges
    double healthy_z_min = 1;  // m; lowest healthy height
    double healthy_z_max = 2;  // m; greatest healthy height
  };
  static constexpr InfoSpec kInfos[] = {
      {"x_position"},
      {"y_position"},
      {"tendon_length", DType::kFloat64, kPerTendon},
      {"tendon_velocity", DType::kFloat64, kPerTendon},
      {"distance_from_origin"},
      {"x_velocity"},
      {"y_velocity"},
      {"reward_survive"},
      {"reward_forward"},
      {"reward_ctrl"},
      {"reward_contact"}};
  static constexpr ModelNeeds kNeeds = humanoid::kNeeds;
  static constexpr DataArrays kReads =
      kXipos | kCinert | kCvel | kQfrcActuator | kTenLength | kTenVelocity;
  static constexpr std::int32_t kSubstepNs = 50'000;
  double before[2] = {};  // the centre of mass

  HumanoidTask(const Config&, const auto&) {}

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("forward_reward_weight", config.forward_reward_weight);
    visit("ctrl_cost_weight", config.ctrl_cost_weight);
    visit("contact_cost_weight", config.contact_cost_weight);
    visit("contact_cost_min", config.contact_cost_min);
    visit("contact_cost_max", config.contact_cost_max);
    visit("healthy_reward", config.healthy_reward);
    visit("terminate_when_unhealthy", config.terminate_when_unhealthy);
    visit("healthy_z_min", config.healthy_z_min);
    visit("healthy_z_max", config.healthy_z_max);
    humanoid::VisitConfig(config, visit);
  }
  ROLLOUTS_HD static bool ContactForces(const Config& config) {
    return config.include_cfrc_ext_in_observation || config.contact_cost_weight != 0;
  }

  ROLLOUTS_HD void DrawStart(const Config& config, const auto& model, Rng& rng, double* qpos,
                             double* qvel) const {
    humanoid::DrawStart(config, model, rng, qpos, qvel);
  }

  ROLLOUTS_HD void AfterReset(const Config&, const auto& sim, auto& infos) {
    MassCenter(sim, before);
    PutPosition(sim, infos);
  }

  ROLLOUTS_HD StepResult AfterStep(const Config& config, const auto& sim, const float*,
                                   auto& infos) {
    double after[2];
    MassCenter(sim, after);
    const double x_velocity = (after[0] - before[0]) / sim.dt;
    const double y_velocity = (after[1] - before[1]) / sim.dt;
    mujoco::CopyPair(after, before);

    const bool healthy =
        mujoco::Inside(sim.data.qpos[2], config.healthy_z_min, config.healthy_z_max);
    const double forward_reward = config.forward_reward_weight * x_velocity;
    const double healthy_reward = healthy * config.healthy_reward;
    const double ctrl_cost = humanoid::ControlCost(sim, config.ctrl_cost_weight);
    const double contact_cost = humanoid::ContactCost(
        sim, config.contact_cost_weight, config.contact_cost_min, config.contact_cost_max);
    const double reward = (forward_reward + healthy_reward) - (ctrl_cost + contact_cost);

    PutPosition(sim, infos);
    infos.Put(x_velocity);
    infos.Put(y_velocity);
    infos.Put(healthy_reward);
    infos.Put(forward_reward);
    infos.Put(-ctrl_cost);
    infos.Put(-contact_cost);
    return StepResult::Of(reward, !healthy && config.terminate_when_unhealthy);
  }

  ROLLOUTS_HD void Observe(const Config& config, const auto& sim, auto& obs) const {
    humanoid::Observe(config, sim, obs);
  }

  ROLLOUTS_HD void MassCenter(const auto& sim, double* center) const {
    const auto mass_of = [&](std::int32_t body) -> double { return sim.model.body_mass[body]; };
    const double total_mass = mujoco::PairwiseSum<double>(mass_of, 0, sim.model.nbody);
    for (std::int32_t axis = 0; axis < 2; ++axis) {
      double sum = 0;
      for (std::int32_t body = 0; body < sim.model.nbody; ++body) {
        sum += mass_of(body) * sim.data.xipos[3 * body + axis];
      }
      center[axis] = sum / total_mass;
    }
  }

 private:
  ROLLOUTS_HD static void PutPosition(const auto& sim, auto& infos) {
    infos.Put(sim.data.qpos[0]);
    infos.Put(sim.data.qpos[1]);
    humanoid::PutTendons(sim, infos);
    infos.Put(mujoco::Norm(sim.data.qpos, 2));
  }
};

using Humanoid = MujocoEnv<HumanoidTask>;

}  // namespace rollouts
