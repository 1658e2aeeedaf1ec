// SPDX-License-Identifier: Apache-2.0
// How dm_control drives a simulation (its mujoco/engine.py), and names of a model's parts.
#include <algorithm>

#include "mujoco_native.h"
#include "rollouts/pool/errors.h"

namespace rollouts {
namespace {

struct Kind {
  mjtObj type;
  const char* name;
};

Kind KindOf(ModelObject object) {
  switch (object) {
    case ModelObject::kBody: return {mjOBJ_BODY, "body"};
    case ModelObject::kJoint: return {mjOBJ_JOINT, "joint"};
    case ModelObject::kGeom: return {mjOBJ_GEOM, "geom"};
    case ModelObject::kSite: return {mjOBJ_SITE, "site"};
    case ModelObject::kSensor: return {mjOBJ_SENSOR, "sensor"};
    case ModelObject::kActuator: return {mjOBJ_ACTUATOR, "actuator"};
    case ModelObject::kTendon: return {mjOBJ_TENDON, "tendon"};
    case ModelObject::kLight: return {mjOBJ_LIGHT, "light"};
  }
  return {mjOBJ_UNKNOWN, "thing"};
}

static_assert(kFreeJoint == static_cast<int>(mjJNT_FREE) &&
              kBallJoint == static_cast<int>(mjJNT_BALL) &&
              kSlideJoint == static_cast<int>(mjJNT_SLIDE) &&
              kHingeJoint == static_cast<int>(mjJNT_HINGE));

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
  return native_->model->jnt_limited[joint] != 0;
}

StartView Physics::start() {
  mjData& data = *native_->data;
  return {.qpos = data.qpos, .qvel = data.qvel, .act = data.act, .time = &data.time};
}

void Physics::ResetData() {
  Guarded([&] { Mujoco().reset_data(native_->model, native_->data.get()); });
  ForwardUnactuated();
}

void Physics::ForwardUnactuated() {
  // the model is shared, so a copy of its options says so
  mjModel unactuated = *native_->model;
  unactuated.opt.disableflags |= mjDSBL_ACTUATION;
  Guarded([&] { Mujoco().forward(&unactuated, native_->data.get()); });
  ThrowWarnings();
}

bool Physics::TryForwardUnactuated() {
  try {
    ForwardUnactuated();
  } catch (const EngineError&) {
    return false;
  }
  return true;
}

Physics::HeightFieldView Physics::HeightField() const {
  const mjModel& model = *native_->model;
  if (model.nhfield < 1 || model.hfield_nrow[0] != model.hfield_ncol[0]) {
    throw SpecError("the model " + model_->xml_path() + " has no square height field");
  }
  return {static_cast<std::size_t>(model.hfield_adr[0]), model.hfield_nrow[0],
          model.hfield_size[0]};
}

void Physics::StepUpToDate(const float* controls, std::int32_t substeps) {
  const MujocoApi& api = Mujoco();
  const mjModel* model = native_->model;
  mjData* data = native_->data.get();
  Guarded([&] {
    if (controls) std::copy_n(controls, model->nu, data->ctrl);
    // the first half of a step was done at the end of the one before; Runge and Kutta's has none
    std::int32_t whole = substeps;
    if (model->opt.integrator != mjINT_RK4) {
      api.step2(model, data);
      --whole;
    }
    for (std::int32_t i = 0; i < whole; ++i) api.step(model, data);
    api.step1(model, data);
  });
  ThrowWarnings();
}

void Physics::Refresh() {
  Guarded([&] { Mujoco().step1(native_->model, native_->data.get()); });
  ThrowWarnings();
}

std::int32_t Physics::num_contacts() const { return native_->data->ncon; }

void Physics::ObjectVelocity(ModelObject object, std::int32_t id, double* velocity) const {
  mjtNum both[6];  // rotation first
  Mujoco().object_velocity(native_->model, native_->data.get(), KindOf(object).type, id, both,
                           /*flg_local=*/0);
  std::copy_n(both + 3, 3, velocity);
}

}  // namespace rollouts
