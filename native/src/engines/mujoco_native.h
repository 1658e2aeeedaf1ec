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

// A model as lanes read it.
struct ModelInLanes {
  std::shared_ptr<const lanes::Model> model;  // null where they do not step it
  std::string why_not;
  DataArrays unequal = 0;  // what they leave otherwise than the MuJoCo that is loaded
};

// Reads a model, and compares steps of it with MuJoCo's. engines/mujoco_lanes/
ModelInLanes ReadInLanes(const mjModel* model, const std::string& xml_path);
// Reads a simulation's model with numbers of its own; null where lanes do not step it.
std::shared_ptr<const lanes::Model> ReadOwnInLanes(const std::shared_ptr<const lanes::Model>& shared,
                                                   const mjModel* model);

struct PhysicsModel::Native {
  std::unique_ptr<mjModel, DeleteModel> model;
  std::vector<ModelField> fields;
  mutable std::once_flag lanes_once;
  mutable ModelInLanes lanes;  // once somebody has asked
};

struct Physics::Native {
  const mjModel* model;
  std::unique_ptr<mjData, DeleteData> data;
  std::unique_ptr<ModelCopy> own;  // null while every array is shared
  std::size_t num_controls;
  double* controls;                // the data's
  const MujocoWarning* warnings;   // (kNumWarnings) of the data

  const lanes::Model* lanes = nullptr;  // null without UseLanes
  std::shared_ptr<const lanes::Model> own_lanes;  // where its model differs from the shared one
  StepKind kind;
  lanes::Row row;         // the data's
  bool in_lanes = false;  // this episode's steps may be made by lanes
  bool done = false;      // by lanes, and nobody has asked for it yet
  bool at_rest = false;   // the same of a SettleUpToDate
  bool by_lanes = false;  // the last step was made by lanes
};

ModelView ViewOfModel(const mjModel* model);

inline const mjModel* ModelOf(const PhysicsModel& model) {
  return static_cast<const mjModel*>(model.view().engine_model);
}
inline const mjModel* ModelOf(const Physics& physics) {
  return static_cast<const mjModel*>(physics.model_view().engine_model);
}

}  // namespace rollouts
