// SPDX-License-Identifier: Apache-2.0
// What every environment on MuJoCo has: a simulation, and a model that a user may change.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rollouts/core/model_overrides.h"
#include "rollouts/engines/mujoco_physics.h"
#include "rollouts/envs/mujoco/model_changes.h"

namespace rollouts {

// The functions of core/env.h for engines whose model has fields.
class ModelOwner {
 public:
  void CheckOverrides(const ModelOverrides& overrides) const {
    ModelChanges::Check(physics_.model(), overrides);
  }
  void SetModel(ModelOverrides overrides) { changes_.Set(std::move(overrides)); }
  const ModelOverrides& model_overrides() const { return changes_.overrides(); }
  ModelArray ReadModel(const std::string& field, bool of_file) const {
    return ModelChanges::Read(physics_, field, of_file);
  }
  std::vector<std::string> ModelFields() const { return physics_.model().SettableFields(); }

 protected:
  explicit ModelOwner(std::shared_ptr<const PhysicsModel> model) : physics_(std::move(model)) {}
  ~ModelOwner() = default;

  Physics physics_;
  ModelChanges changes_;  // a Reset puts them in place: changes_.BeginEpisode(physics_, rng)
};

}  // namespace rollouts
