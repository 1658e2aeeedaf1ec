// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "mujoco_native.h"
#include "rollouts/envs/mujoco/physics.h"
#include "rollouts/pool/errors.h"
#include "rollouts/pool/state.h"

namespace rollouts {
namespace {

constexpr int kSaved = mjSTATE_INTEGRATION;

constexpr const char* kWarnings[mjNWARNING] = {
    "its inertia matrix is singular",    "it has too many contacts for its memory",
    "it has too many constraints for its memory",
    "its positions are not finite or huge", "its velocities are not finite or huge",
    "its accelerations are not finite or huge", "its controls are not finite or huge",
};

std::string Unusable(const std::string& xml_path, const std::string& reason) {
  return "MuJoCo cannot use the model " + xml_path + ": " + reason;
}

// Models that somebody holds, by path and the time that the file was written.
using ModelKey = std::pair<std::string, std::filesystem::file_time_type>;
std::mutex models_mutex;
std::map<ModelKey, std::weak_ptr<const PhysicsModel>> models;

}  // namespace

std::shared_ptr<const PhysicsModel> PhysicsModel::Get(const std::string& xml_path) {
  const std::lock_guard lock(models_mutex);
  std::erase_if(models, [](const auto& entry) { return entry.second.expired(); });
  std::error_code no_file;  // the constructor says so
  const ModelKey key(xml_path, std::filesystem::last_write_time(xml_path, no_file));
  const auto held = models.find(key);
  if (held != models.end()) {
    if (auto model = held->second.lock()) return model;
  }
  const std::shared_ptr<const PhysicsModel> made(new PhysicsModel(xml_path));
  models[key] = made;
  return made;
}

PhysicsModel::PhysicsModel(const std::string& xml_path)
    : xml_path_(xml_path), native_(std::make_unique<Native>()) {
  const MujocoApi& api = Mujoco();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(xml_path, ignored)) {
    throw EngineError(Unusable(xml_path, "there is no such file. xml_file is one of Gymnasium's "
                                         "models or a path: absolute, ./... or ~/...; of MuJoCo-v0 "
                                         "also one from the working directory"));
  }
  char reason[1000] = "";
  mjModel* model = nullptr;
  const bool binary = xml_path.ends_with(".mjb");
  Guarded([&] {
    model = binary ? api.load_model(xml_path.c_str(), nullptr)
                   : api.load_xml(xml_path.c_str(), nullptr, reason, sizeof(reason));
  });
  if (!model) throw EngineError(Unusable(xml_path, reason));
  native_->model.reset(model);
  native_->fields = ModelFields(*model);
  view_ = ViewOfModel(*model);
}

ModelView ViewOfModel(const mjModel& model) {
  return {.nq = static_cast<std::int32_t>(model.nq),
          .nv = static_cast<std::int32_t>(model.nv),
          .nu = static_cast<std::int32_t>(model.nu),
          .nbody = static_cast<std::int32_t>(model.nbody),
          .nsite = static_cast<std::int32_t>(model.nsite),
          .ntendon = static_cast<std::int32_t>(model.ntendon),
          .na = static_cast<std::int32_t>(model.na),
          .njnt = static_cast<std::int32_t>(model.njnt),
          .nsensordata = static_cast<std::int32_t>(model.nsensordata),
          .timestep = model.opt.timestep,
          .gravity = model.opt.gravity,
          .qpos0 = model.qpos0,
          .body_mass = model.body_mass,
          .body_subtreemass = model.body_subtreemass,
          .jnt_type = model.jnt_type,
          .jnt_qposadr = model.jnt_qposadr,
          .jnt_dofadr = model.jnt_dofadr,
          .jnt_range = model.jnt_range,
          .geom_size = model.geom_size,
          .site_size = model.site_size,
          .key_qpos = model.key_qpos,
          .key_qvel = model.key_qvel,
          .actuator_ctrlrange = model.actuator_ctrlrange,
          .sensor_adr = model.sensor_adr,
          .engine_model = &model};
}

PhysicsModel::~PhysicsModel() = default;

PhysicsModel::Range PhysicsModel::ControlRange(std::int32_t actuator) const {
  const mjModel& model = *native_->model;
  if (!model.actuator_ctrllimited[actuator]) {
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    return {-kInfinite, kInfinite};
  }
  return {model.actuator_ctrlrange[2 * actuator], model.actuator_ctrlrange[2 * actuator + 1]};
}

Physics::Physics(std::shared_ptr<const PhysicsModel> model)
    : model_(std::move(model)),
      native_(std::make_unique<Native>()),
      model_view_(model_->view()) {
  native_->model = model_->native_->model.get();
  mjData* data = nullptr;
  Guarded([&] { data = Mujoco().make_data(native_->model); });
  if (!data) throw EngineError(Unusable(model_->xml_path(), "its data cannot be allocated"));
  native_->data.reset(data);
  view_ = {.qpos = data->qpos,
           .qvel = data->qvel,
           .act = data->act,
           .ctrl = data->ctrl,
           .xpos = data->xpos,
           .xquat = data->xquat,
           .xmat = data->xmat,
           .xipos = data->xipos,
           .geom_xpos = data->geom_xpos,
           .geom_xmat = data->geom_xmat,
           .site_xpos = data->site_xpos,
           .site_xmat = data->site_xmat,
           .sensordata = data->sensordata,
           .cinert = data->cinert,
           .cvel = data->cvel,
           .cfrc_ext = data->cfrc_ext,
           .qfrc_actuator = data->qfrc_actuator,
           .qfrc_constraint = data->qfrc_constraint,
           .ten_length = data->ten_length,
           .ten_velocity = data->ten_velocity,
           .engine_data = data};
}

Physics::~Physics() = default;

void Physics::Reset(const double* qpos, const double* qvel, std::int32_t keyframe) {
  const MujocoApi& api = Mujoco();
  const mjModel* model = native_->model;
  mjData* data = native_->data.get();
  Guarded([&] {
    if (keyframe < 0) {
      api.reset_data(model, data);
    } else {
      api.reset_data_keyframe(model, data, keyframe);
    }
    std::copy_n(qpos, model->nq, data->qpos);
    std::copy_n(qvel, model->nv, data->qvel);
    api.forward(model, data);
  });
  ThrowWarnings();
}

void Physics::Step(const float* controls, std::int32_t substeps, bool contact_forces) {
  const MujocoApi& api = Mujoco();
  const mjModel* model = native_->model;
  mjData* data = native_->data.get();
  Guarded([&] {
    std::copy_n(controls, model->nu, data->ctrl);
    for (std::int32_t i = 0; i < substeps; ++i) api.step(model, data);
    if (contact_forces) api.rne_post_constraint(model, data);
  });
  ThrowWarnings();
}

// MuJoCo goes on after a warning, from a state that it has reset itself where numbers were bad.
void Physics::ThrowWarnings() {
  const mjData& data = *native_->data;
  for (int i = 0; i < mjNWARNING; ++i) {
    if (data.warning[i].number == 0) [[likely]] continue;
    const std::string said = LastMujocoWarning();
    throw EngineError(std::string("the simulation cannot go on, ") + kWarnings[i] +
                      (said.empty() ? "" : " (MuJoCo: " + said + ")"));
  }
}

void Physics::Save(StateWriter& writer) const {
  const MujocoApi& api = Mujoco();
  const auto size = static_cast<std::size_t>(api.state_size(native_->model, kSaved));
  std::vector<double> state(size);
  api.get_state(native_->model, native_->data.get(), state.data(), kSaved);
  writer.Put(static_cast<std::int32_t>(mjVERSION_HEADER));
  writer.Put(static_cast<std::uint64_t>(size));
  writer.PutBytes({reinterpret_cast<const std::uint8_t*>(state.data()), size * sizeof(double)});
  SaveOwn(writer);
}

void Physics::Load(StateReader& reader) {
  const MujocoApi& api = Mujoco();
  const mjModel* model = model_->native_->model.get();
  mjData* data = native_->data.get();
  const auto version = reader.Get<std::int32_t>();
  if (version != mjVERSION_HEADER) {
    throw SpecError("is of MuJoCo " + std::to_string(version) + ", this is " +
                    std::to_string(mjVERSION_HEADER));
  }
  const auto size = reader.Get<std::uint64_t>();
  const auto expected = static_cast<std::uint64_t>(api.state_size(model, kSaved));
  if (size != expected) {
    throw SpecError("has " + std::to_string(size) + " numbers of a model with " +
                    std::to_string(expected));
  }
  std::vector<double> state(size);
  const auto bytes = reader.GetBytes(size * sizeof(double));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::uint8_t*>(state.data()));
  LoadOwn(reader);
  model = native_->model;
  Guarded([&] {
    api.reset_data(model, data);
    api.set_state(model, data, state.data(), kSaved);
  });
}

}  // namespace rollouts
