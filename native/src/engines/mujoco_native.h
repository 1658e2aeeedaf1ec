// SPDX-License-Identifier: Apache-2.0
// MuJoCo's objects that PhysicsModel and Physics own. For engines/mujoco_*.cpp and engines/pixels/.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mujoco_lib.h"
#include "mujoco_model_copy.h"
#include "mujoco_model_fields.h"
#include "rollouts/engines/mujoco_physics.h"
#include "rollouts/lanes/step.h"

namespace rollouts {

struct DeleteModel {
  void operator()(mjModel* model) const { Mujoco().delete_model(model); }
};
struct DeleteData {
  void operator()(mjData* data) const { Mujoco().delete_data(data); }
};

// A model for lanes.
struct ModelInLanes {
  std::shared_ptr<const lanes::Model> model;  // null where lanes do not step it
  std::string why_not;
  DataArrays unequal = 0;  // arrays that lanes leave different from the loaded MuJoCo
};

// Reads a model, and compares steps of lanes with MuJoCo's; in engines/mujoco_lanes/.
ModelInLanes ReadInLanes(const mjModel* model, const std::string& xml_path);
// Reads the model of a simulation that owns some fields; null where lanes do not step it.
std::shared_ptr<const lanes::Model> ReadOwnInLanes(const std::shared_ptr<const lanes::Model>& shared,
                                                   const mjModel* model);

struct PhysicsModel::Native {
  std::unique_ptr<mjModel, DeleteModel> model;
  std::vector<ModelField> fields;
  mutable std::once_flag lanes_once;
  mutable ModelInLanes lanes;  // set at the first request
};

struct Physics::Native {
  const mjModel* model;
  std::unique_ptr<mjData, DeleteData> data;
  std::unique_ptr<ModelCopy> own;  // null while every array is shared
  std::size_t num_controls;
  double* controls;                // the data's
  const MujocoWarning* warnings;   // (kNumWarnings) of the data

  const lanes::Model* lanes = nullptr;  // null without UseLanes
  std::shared_ptr<const lanes::Model> own_lanes;  // set if its model differs from the shared one
  StepKind kind;
  lanes::Row row;         // the data's
  bool in_lanes = false;  // lanes may make this episode's steps
  bool done = false;      // lanes have made a step that was not requested yet
  bool at_rest = false;   // the same for a SettleUpToDate
  bool by_lanes = false;  // lanes made the last step
};

ModelView ViewOfModel(const mjModel* model);

inline const mjModel* ModelOf(const PhysicsModel& model) {
  return static_cast<const mjModel*>(model.view().engine_model);
}
inline const mjModel* ModelOf(const Physics& physics) {
  return static_cast<const mjModel*>(physics.model_view().engine_model);
}

}  // namespace rollouts
