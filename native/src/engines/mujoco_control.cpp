// SPDX-License-Identifier: Apache-2.0
// dm_control's way to step a simulation (its mujoco/engine.py), and names of a model's parts.
#include <algorithm>

#include "mujoco_native.h"
#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

// MuJoCo's number of a kind of objects, and its name in messages.
struct Kind {
  MujocoObject type;
  const char* name;
};

Kind KindOf(ModelObject object) {
  switch (object) {
    case ModelObject::kBody: return {kBodyObject, "body"};
    case ModelObject::kJoint: return {kJointObject, "joint"};
    case ModelObject::kGeom: return {kGeomObject, "geom"};
    case ModelObject::kSite: return {kSiteObject, "site"};
    case ModelObject::kSensor: return {kSensorObject, "sensor"};
    case ModelObject::kActuator: return {kActuatorObject, "actuator"};
    case ModelObject::kTendon: return {kTendonObject, "tendon"};
    case ModelObject::kLight: return {kLightObject, "light"};
  }
  return {kUnknownObject, "thing"};
}

}  // namespace

std::int32_t PhysicsModel::Id(ModelObject object, const std::string& name) const {
  const Kind kind = KindOf(object);
  const int id = Mujoco().name2id(native_->model.get(), kind.type, name.c_str());
  if (id < 0) {
    throw SpecError("the model " + xml_path_ + " has no " + kind.name + " '" + name + "'");
  }
  return id;
}

bool Physics::JointLimited(std::int32_t joint) const {
  return Release().model.jnt_limited.In(native_->model)[joint];
}

StartView Physics::start() {
  const DataPlaces& at = Release().data;
  mjData* const data = native_->data.get();
  return {.qpos = at.qpos.In(data),
          .qvel = at.qvel.In(data),
          .act = at.act.In(data),
          .time = &at.time.In(data)};
}

void Physics::ResetData() {
  Guarded([&] { Mujoco().reset_data(native_->model, native_->data.get()); });
  ForwardUnactuated();
}

void Physics::ForwardUnactuated() {
  // called here, because the task has drawn new values in the model
  BeginAnew();
  // disables actuation in a copy of the options, because the model is shared
  ModelStruct unactuated(native_->model);
  Release().model.disableflags.In(unactuated.get()) |= kActuationDisabled;
  Guarded([&] { Mujoco().forward(unactuated.get(), native_->data.get()); });
  ThrowWarnings();
}

bool Physics::TryForwardUnactuated() {
  // when this returns false, the caller tries another start
  try {
    ForwardUnactuated();
  } catch (const EngineError&) {
    return false;
  }
  return true;
}

Physics::HeightFieldView Physics::HeightField() const {
  const ModelPlaces& at = Release().model;
  const mjModel* const model = native_->model;
  // bumps are drawn in a square: such terrain is not possible in other fields
  if (at.nhfield.In(model) < 1 || at.hfield_nrow.In(model)[0] != at.hfield_ncol.In(model)[0]) {
    throw SpecError("the model " + model_->xml_path() + " has no square height field");
  }
  return {static_cast<std::size_t>(at.hfield_adr.In(model)[0]), at.hfield_nrow.In(model)[0],
          at.hfield_size.In(model)[0]};
}

void Physics::StepUpToDate(const float* controls, std::int32_t substeps) {
  const MujocoApi& api = Mujoco();
  const mjModel* model = native_->model;
  mjData* data = native_->data.get();
  // a step by lanes leaves, of its first half, only the results that tasks read
  const bool first_half_is_there = !native_->by_lanes;
  if (FoundDone()) return;
  Guarded([&] {
    if (!first_half_is_there) api.step1(model, data);
    if (controls) std::copy_n(controls, native_->num_controls, native_->controls);
    // the first half of this step is made already; Runge-Kutta makes whole steps
    std::int32_t whole = substeps;
    if (Release().model.integrator.In(model) != kRungeKutta) {
      api.step2(model, data);
      --whole;
    }
    for (std::int32_t i = 0; i < whole; ++i) api.step(model, data);
    // the first half of the next step: values derived from the new positions
    api.step1(model, data);
  });
  ThrowWarnings();
}

void Physics::Refresh() {
  // values that depend on accelerations are not computed again
  Guarded([&] { Mujoco().step1(native_->model, native_->data.get()); });
  ThrowWarnings();
}

std::int32_t Physics::num_contacts() const { return Release().data.ncon.In(native_->data.get()); }

}  // namespace rollouts
