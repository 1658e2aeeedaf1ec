// SPDX-License-Identifier: Apache-2.0
// Changes that a user has made to the model of one environment.
#pragma once

#include <string>

#include "rollouts/core/model_overrides.h"
#include "rollouts/core/rng.h"
#include "rollouts/engines/mujoco_physics.h"

namespace rollouts {

class StateReader;
class StateWriter;

class ModelChanges {
 public:
  // Throws SpecError for fields that the model lacks, and for values that they may not have.
  static void Check(const PhysicsModel& model, const ModelOverrides& overrides);

  // A field's values in the simulation, or in the shared model. Throws SpecError for one that
  // cannot be changed.
  static ModelArray Read(const Physics& physics, const std::string& field, bool of_file);

  const ModelOverrides& overrides() const { return overrides_; }
  // Replaces all overrides by these, which Check has accepted, from the next BeginEpisode on.
  void Set(ModelOverrides overrides);

  // Puts the overrides into the simulation's model where they are new or drawn for every episode,
  // and computes MuJoCo's constants again (mj_setConst). All other own fields then get the shared
  // values, so a task must set its own fields after this. Throws EngineError where MuJoCo refuses
  // the values; the next call tries again.
  void BeginEpisode(Physics& physics, Rng& rng);

  // Saves only the overrides: the values in force are part of the simulation's state.
  void Save(StateWriter& writer) const;
  // The next BeginEpisode puts the overrides in place, because they may not have been in place when
  // they were saved. Throws SpecError.
  void Load(StateReader& reader, const PhysicsModel& model);

 private:
  ModelOverrides overrides_;
  bool in_place_ = true;
};

}  // namespace rollouts
