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
  // Throws SpecError for what the model does not have or may not have so.
  static void Check(const PhysicsModel& model, const ModelOverrides& overrides);

  // A field's values in the simulation, or in the shared model. Throws SpecError for one that
  // cannot be changed.
  static ModelArray Read(const Physics& physics, const std::string& field, bool of_file);

  const ModelOverrides& overrides() const { return overrides_; }
  // Holds from the next BeginEpisode on, in place of all before; Check has accepted them.
  void Set(ModelOverrides overrides);

  // Puts the overrides into the simulation's model where they are new or drawn for every
  // episode, and has MuJoCo's constants follow (mj_setConst). Whatever else was own gets the
  // shared values again then, so a task sets its own fields after this. Throws EngineError
  // where MuJoCo refuses the values; the next call tries again.
  void BeginEpisode(Physics& physics, Rng& rng);

  // The overrides alone: their values are part of the simulation's state.
  void Save(StateWriter& writer) const;
  // The next BeginEpisode puts them in place: they may have been new when they were saved. Throws
  // SpecError.
  void Load(StateReader& reader, const PhysicsModel& model);

 private:
  ModelOverrides overrides_;
  bool in_place_ = true;
};

}  // namespace rollouts
