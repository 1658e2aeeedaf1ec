// SPDX-License-Identifier: Apache-2.0
// The parts that Humanoid and HumanoidStandup have in common: starts and observations.
#pragma once

#include "rollouts/envs/mujoco/task.h"

namespace rollouts {

struct HumanoidConfig {
  double reset_noise_scale = 0.01;  // scale of the noise that is added to the model's own start
  bool exclude_current_positions_from_observation = true;  // leaves out the place in the world
  bool include_cinert_in_observation = true;  // inertias and masses of the bodies
  bool include_cvel_in_observation = true;  // velocities of the bodies
  bool include_qfrc_actuator_in_observation = true;  // forces of the actuators
  bool include_cfrc_ext_in_observation = true;  // contact forces on the bodies
};

namespace humanoid {

// The first six velocities are those of the body as a whole.
inline constexpr std::int32_t kFreeVelocities = 6;
inline constexpr ModelNeeds kNeeds{.nq = 3, .nv = kFreeVelocities};

template <typename Visitor>
void VisitConfig(HumanoidConfig& config, Visitor& visit) {
  visit("reset_noise_scale", config.reset_noise_scale);
  visit("exclude_current_positions_from_observation",
        config.exclude_current_positions_from_observation);
  visit("include_cinert_in_observation", config.include_cinert_in_observation);
  visit("include_cvel_in_observation", config.include_cvel_in_observation);
  visit("include_qfrc_actuator_in_observation", config.include_qfrc_actuator_in_observation);
  visit("include_cfrc_ext_in_observation", config.include_cfrc_ext_in_observation);
}

ROLLOUTS_HD inline void DrawStart(const HumanoidConfig& config, const auto& model, Rng& rng, double* qpos,
                                  double* qvel) {
  mujoco::AddUniform(rng, config.reset_noise_scale, qpos, model.nq);
  mujoco::AddUniform(rng, config.reset_noise_scale, qvel, model.nv);
}

// Writes the observation, without numbers of the world, which is the first body.
ROLLOUTS_HD inline void Observe(const HumanoidConfig& config, const auto& sim, auto& obs) {
  const auto& model = sim.model;
  const auto& data = sim.data;
  const std::int32_t skipped = config.exclude_current_positions_from_observation ? 2 : 0;
  obs.Put(data.qpos + skipped, model.nq - skipped);
  obs.Put(data.qvel, model.nv);
  if (config.include_cinert_in_observation) obs.Put(data.cinert + 10, 10 * (model.nbody - 1));
  if (config.include_cvel_in_observation) obs.Put(data.cvel + 6, 6 * (model.nbody - 1));
  if (config.include_qfrc_actuator_in_observation) {
    obs.Put(data.qfrc_actuator + kFreeVelocities, model.nv - kFreeVelocities);
  }
  if (config.include_cfrc_ext_in_observation) obs.Put(data.cfrc_ext + 6, 6 * (model.nbody - 1));
}

ROLLOUTS_HD inline void PutTendons(const auto& sim, auto& infos) {
  infos.Put(sim.data.ten_length, sim.model.ntendon);
  infos.Put(sim.data.ten_velocity, sim.model.ntendon);
}

// The cost of contacts with the world: weight * sum of squared forces, clipped.
ROLLOUTS_HD inline double ContactCost(const auto& sim, double weight, double low, double high) {
  const double cost = weight * mujoco::SumOfSquares(sim.data.cfrc_ext, 6 * sim.model.nbody);
  return Clip(cost, low, high);
}

ROLLOUTS_HD inline double ControlCost(const auto& sim, double weight) {
  return weight * mujoco::SumOfSquares(sim.data.ctrl, sim.model.nu);
}

}  // namespace humanoid
}  // namespace rollouts
