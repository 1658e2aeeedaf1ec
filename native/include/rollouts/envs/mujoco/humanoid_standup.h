// SPDX-License-Identifier: Apache-2.0
// HumanoidStandup-v5 of Gymnasium (humanoidstandup_v5.py): stand up from lying.
#pragma once

#include "rollouts/envs/mujoco/humanoid_body.h"

namespace rollouts {

struct HumanoidStandupTask {
  static constexpr ModelFile kModel{"humanoidstandup.xml", 5};
  struct Config : HumanoidConfig {
    double uph_cost_weight = 1;  // has no effect, as in Gymnasium's class
    double ctrl_cost_weight = 0.1;  // cost of the sum of squared actions
    double impact_cost_weight = 5e-7;  // cost of the sum of squared contact forces
    double impact_cost_min = -kInfinity;  // least impact cost of a step
    double impact_cost_max = 10;  // greatest impact cost of a step
  };
  static constexpr InfoSpec kInfos[] = {
      {"x_position"},
      {"y_position"},
      {"z_distance_from_origin"},
      {"tendon_length", DType::kFloat64, kPerTendon},
      {"tendon_velocity", DType::kFloat64, kPerTendon},
      {"reward_linup"},
      {"reward_quadctrl"},
      {"reward_impact"}};
  static constexpr ModelNeeds kNeeds = humanoid::kNeeds;
  static constexpr DataArrays kReads = kCinert | kCvel | kQfrcActuator | kTenLength | kTenVelocity;
  static constexpr std::int32_t kSubstepNs = 70'000;
  double before[2] = {};

  HumanoidStandupTask(const Config&, const auto&) {}

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("uph_cost_weight", config.uph_cost_weight);
    visit("ctrl_cost_weight", config.ctrl_cost_weight);
    visit("impact_cost_weight", config.impact_cost_weight);
    visit("impact_cost_min", config.impact_cost_min);
    visit("impact_cost_max", config.impact_cost_max);
    humanoid::VisitConfig(config, visit);
  }
  ROLLOUTS_HD static bool ContactForces(const Config& config) {
    return config.include_cfrc_ext_in_observation || config.impact_cost_weight != 0;
  }

  ROLLOUTS_HD void DrawStart(const Config& config, const auto& model, Rng& rng, double* qpos,
                             double* qvel) const {
    humanoid::DrawStart(config, model, rng, qpos, qvel);
  }
  ROLLOUTS_HD void AfterReset(const Config&, const auto& sim, auto& infos) {
    PutPosition(sim, infos);
  }

  ROLLOUTS_HD StepResult AfterStep(const Config& config, const auto& sim, const float*,
                                   auto& infos) {
    PutPosition(sim, infos);
    return PutCosts(config, sim, infos);
  }

  ROLLOUTS_HD static StepResult PutCosts(const Config& config, const auto& sim, auto& infos) {
    const double uph_cost = sim.data.qpos[2] / sim.model.timestep;
    const double ctrl_cost = humanoid::ControlCost(sim, config.ctrl_cost_weight);
    const double impact_cost = humanoid::ContactCost(
        sim, config.impact_cost_weight, config.impact_cost_min, config.impact_cost_max);
    infos.Put(uph_cost);
    infos.Put(-ctrl_cost);
    infos.Put(-impact_cost);
    return StepResult::Of(uph_cost - ctrl_cost - impact_cost + 1, false);
  }

  ROLLOUTS_HD void Observe(const Config& config, const auto& sim, auto& obs) const {
    humanoid::Observe(config, sim, obs);
  }

 private:
  ROLLOUTS_HD static void PutPosition(const auto& sim, auto& infos) {
    infos.Put(sim.data.qpos[0]);
    infos.Put(sim.data.qpos[1]);
    infos.Put(sim.data.qpos[2] - sim.model.qpos0[2]);
    humanoid::PutTendons(sim, infos);
  }
};

using HumanoidStandup = MujocoEnv<HumanoidStandupTask>;

}  // namespace rollouts
