// SPDX-License-Identifier: Apache-2.0
// What PhysicsModel and Physics own of MuJoCo's. Only engines/mujoco_*.cpp and engines/pixels/ include this.
#pragma once

#include <memory>
#include <vector>

#include "mujoco_lib.h"
#include "mujoco_model_copy.h"
#include "mujoco_model_fields.h"
#include "rollouts/engines/mujoco_physics.h"

namespace rollouts {

struct DeleteModel {
  void operator()(mjModel* model) const { Mujoco().delete_model(model); }
};
struct DeleteData {
  void operator()(mjData* data) const { Mujoco().delete_data(data); }
};

struct PhysicsModel::Native {
  std::unique_ptr<mjModel, DeleteModel> model;
  std::vector<ModelField> fields;
};

struct Physics::Native {
  const mjModel* model;
  std::unique_ptr<mjData, DeleteData> data;
  std::unique_ptr<ModelCopy> own;  // null while every array is shared
  std::size_t num_controls;
  double* controls;                // of the data
  const MujocoWarning* warnings;   // (kNumWarnings) of the data
};

ModelView ViewOfModel(const mjModel* model);

inline const mjModel* ModelOf(const PhysicsModel& model) {
  return static_cast<const mjModel*>(model.view().engine_model);
}
inline const mjModel* ModelOf(const Physics& physics) {
  return static_cast<const mjModel*>(physics.model_view().engine_model);
}

}  // namespace rollouts
