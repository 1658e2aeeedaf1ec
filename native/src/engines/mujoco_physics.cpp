// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mujoco_native.h"
#include "rollouts/engines/mujoco_physics.h"
#include "rollouts/support/errors.h"
#include "rollouts/support/model_files.h"
#include "rollouts/support/state.h"

namespace rollouts {
namespace {

// Warnings in the order of mjtWarning.
constexpr const char* kWarnings[kNumWarnings] = {
    "its inertia matrix is singular",    "it has too many contacts for its memory",
    "it has too many constraints for its memory",
    "its positions are not finite or huge", "its velocities are not finite or huge",
    "its accelerations are not finite or huge", "its controls are not finite or huge",
};

std::string Unusable(const std::string& xml_path, const std::string& reason) {
  return "MuJoCo cannot use the model " + xml_path + ": " + reason;
}

// Throws for a library with other structs: another build of a supported release may have them.
void CheckLayout(const std::string& fault) {
  if (fault.empty()) return;
  throw EngineError("the installed MuJoCo " + VersionText(MujocoVersion()) + " has its structs " +
                    "otherwise than the release " + Release().name + " (" + fault +
                    " is elsewhere), and " + MujocoAdvice() + " --force-reinstall");
}

// A model that may still be in use, and the files that it was read from. `models` has them by path.
struct HeldModel {
  ModelFiles files;
  std::weak_ptr<const PhysicsModel> model;
};
std::mutex models_mutex;
std::map<std::string, HeldModel> models;
// The files that were read last, including those of models that are gone.
std::map<std::filesystem::path, ModelFiles::Stamp> last_read;

// Makes MuJoCo forget assets of changed files: it caches meshes, textures and height fields, and
// compares their times only to the second.
void ForgetOlderAssets(const ModelFiles& files) {
  bool changed = false;
  for (const ModelFiles::Stamp& file : files.files()) {
    const auto [before, is_new] = last_read.try_emplace(file.path, file);
    changed |= !is_new && !(before->second == file);
    before->second = file;
  }
  if (changed) Mujoco().clear_cache(Mujoco().get_cache());
}

// The values of a field; empty where `model` lacks it.
std::span<const std::int32_t> Integers(const std::vector<ModelField>& fields, const mjModel* model,
                                       std::string_view name) {
  const ModelField* const field = FieldNamed(fields, name);
  if (!field) return {};
  return {reinterpret_cast<const std::int32_t*>(field->DataIn(model)),
          static_cast<std::size_t>(field->rows * field->columns)};
}

// Checks a buffer of past controls or readings: it contains the index of its newest entry, which
// MuJoCo trusts.
void CheckCursors(std::span<const double> history, std::span<const std::int32_t> samples,
                  std::span<const std::int32_t> addresses) {
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const std::int32_t count = samples[2 * i];  // the next number is the kind of interpolation
    if (count <= 0) continue;
    const double cursor = history[static_cast<std::size_t>(addresses[i]) + 1];
    if (!(cursor >= 0 && cursor < count && cursor == std::floor(cursor))) {
      throw SpecError("has a buffer of " + std::to_string(count) + " past values whose newest is " +
                      "number " + std::to_string(cursor));
    }
  }
}

// Tells if sleeping, a bit of mjtEnableBit, is on.
bool Sleeps(const std::vector<ModelField>& fields, const mjModel* model) {
  constexpr std::int32_t kSleep = 1 << 4;
  const auto flags = Integers(fields, model, "opt.enableflags");
  return !flags.empty() && (flags[0] & kSleep) != 0;
}

// Checks numbers that MuJoCo uses as indices or as bounds of loops, before any is used.
void CheckNumbers(const std::vector<ModelField>& fields, const mjModel* model,
                  std::span<const double> state) {
  if (!std::all_of(state.begin(), state.end(), [](double one) { return std::isfinite(one); })) {
    throw SpecError("has numbers that are not finite");
  }
  // the history follows time, positions, velocities and activations, the first four bits of
  // mjtState
  const auto first = static_cast<std::size_t>(Mujoco().state_size(model, 0b1111));
  for (const std::string of : {"actuator_history", "sensor_history"}) {
    CheckCursors(state.subspan(first), Integers(fields, model, of),
                 Integers(fields, model, of + "adr"));
  }
}

}  // namespace

std::shared_ptr<const PhysicsModel> PhysicsModel::Get(const std::string& xml_path) {
  const std::lock_guard lock(models_mutex);
  // done under the lock, so that one of two threads that request a file reads it, and the other
  // shares the result
  std::erase_if(models, [](const auto& entry) { return entry.second.model.expired(); });
  const auto held = models.find(xml_path);
  if (held != models.end()) {
    // the last user may be gone by now, or the files may have changed
    auto model = held->second.model.lock();
    if (model && held->second.files.Unchanged()) return model;
  }
  // noted before the model is read, so that the next request sees files written meanwhile
  ModelFiles files(xml_path);
  ForgetOlderAssets(files);
  const std::shared_ptr<const PhysicsModel> made(new PhysicsModel(xml_path));
  models.insert_or_assign(xml_path, HeldModel{std::move(files), made});
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
  // MuJoCo's own message, with the line of the file
  char reason[1000] = "";
  mjModel* model = nullptr;
  const bool binary = xml_path.ends_with(".mjb");
  Guarded([&] {
    model = binary ? api.load_model(xml_path.c_str(), nullptr)
                   : api.load_xml(xml_path.c_str(), nullptr, reason, sizeof(reason));
  });
  // MuJoCo does not treat a file that is no model as a fatal error
  if (!model) throw EngineError(Unusable(xml_path, reason));
  native_->model.reset(model);
  CheckLayout(LayoutFault(Release(), model));
  native_->fields = ModelFields(model);
  view_ = ViewOfModel(model);
}

// Pointers into the model's own arrays, which have to be made again when an array is replaced.
ModelView ViewOfModel(const mjModel* model) {
  const ModelPlaces& at = Release().model;
  return {.nq = static_cast<std::int32_t>(at.nq.In(model)),
          .nv = static_cast<std::int32_t>(at.nv.In(model)),
          .nu = static_cast<std::int32_t>(at.nu.In(model)),
          .nbody = static_cast<std::int32_t>(at.nbody.In(model)),
          .nsite = static_cast<std::int32_t>(at.nsite.In(model)),
          .ntendon = static_cast<std::int32_t>(at.ntendon.In(model)),
          .na = static_cast<std::int32_t>(at.na.In(model)),
          .njnt = static_cast<std::int32_t>(at.njnt.In(model)),
          .nsensordata = static_cast<std::int32_t>(at.nsensordata.In(model)),
          .timestep = at.timestep.In(model),
          .gravity = at.gravity.In(model),
          .qpos0 = at.qpos0.In(model),
          .body_mass = at.body_mass.In(model),
          .body_subtreemass = at.body_subtreemass.In(model),
          .jnt_type = at.jnt_type.In(model),
          .jnt_qposadr = at.jnt_qposadr.In(model),
          .jnt_dofadr = at.jnt_dofadr.In(model),
          .jnt_range = at.jnt_range.In(model),
          .geom_size = at.geom_size.In(model),
          .site_size = at.site_size.In(model),
          .hfield_size = at.hfield_size.In(model),
          .key_qpos = at.key_qpos.In(model),
          .key_qvel = at.key_qvel.In(model),
          .actuator_ctrlrange = at.actuator_ctrlrange.In(model),
          .sensor_adr = at.sensor_adr.In(model),
          .engine_model = model};
}

PhysicsModel::~PhysicsModel() = default;

PhysicsModel::Range PhysicsModel::ControlRange(std::int32_t actuator) const {
  const ModelPlaces& at = Release().model;
  const mjModel* const model = native_->model.get();
  if (!at.actuator_ctrllimited.In(model)[actuator]) {
    // the values of ctrlrange then have no effect
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    return {-kInfinite, kInfinite};
  }
  const double* const range = at.actuator_ctrlrange.In(model) + 2 * actuator;
  return {range[0], range[1]};
}

Physics::Physics(std::shared_ptr<const PhysicsModel> model)
    : model_(std::move(model)),
      native_(std::make_unique<Native>()),
      model_view_(model_->view()) {
  native_->model = model_->native_->model.get();
  // plain pointers, because Guarded may leave by longjmp
  mjData* data = nullptr;
  Guarded([&] { data = Mujoco().make_data(native_->model); });
  if (!data) throw EngineError(Unusable(model_->xml_path(), "its data cannot be allocated"));
  native_->data.reset(data);
  CheckLayout(LayoutFault(Release(), native_->model, data));
  const DataPlaces& at = Release().data;
  // what each step uses, looked up once in the release's table
  native_->num_controls = static_cast<std::size_t>(model_->view().nu);
  native_->controls = at.ctrl.In(data);
  native_->warnings = at.warning.In(data);
  view_ = {.qpos = at.qpos.In(data),
           .qvel = at.qvel.In(data),
           .act = at.act.In(data),
           .ctrl = at.ctrl.In(data),
           .xpos = at.xpos.In(data),
           .xquat = at.xquat.In(data),
           .xmat = at.xmat.In(data),
           .xipos = at.xipos.In(data),
           .geom_xpos = at.geom_xpos.In(data),
           .geom_xmat = at.geom_xmat.In(data),
           .site_xpos = at.site_xpos.In(data),
           .site_xmat = at.site_xmat.In(data),
           .sensordata = at.sensordata.In(data),
           .subtree_com = at.subtree_com.In(data),
           .cinert = at.cinert.In(data),
           .cvel = at.cvel.In(data),
           .cfrc_ext = at.cfrc_ext.In(data),
           .qfrc_actuator = at.qfrc_actuator.In(data),
           .qfrc_constraint = at.qfrc_constraint.In(data),
           .ten_length = at.ten_length.In(data),
           .ten_velocity = at.ten_velocity.In(data),
           .engine_data = data};
}

Physics::~Physics() = default;

void Physics::Reset(const double* qpos, const double* qvel, std::int32_t keyframe) {
  BeginAnew();
  const MujocoApi& api = Mujoco();
  const mjModel* model = native_->model;
  mjData* data = native_->data.get();
  Guarded([&] {
    if (keyframe < 0) {
      api.reset_data(model, data);
    } else {
      api.reset_data_keyframe(model, data, keyframe);
    }
    // replaces the reset's own positions and velocities
    std::copy_n(qpos, model_view_.nq, start().qpos);
    std::copy_n(qvel, model_view_.nv, start().qvel);
    api.forward(model, data);
  });
  ThrowWarnings();
}

void Physics::Step(const float* controls, std::int32_t substeps, bool contact_forces) {
  if (FoundDone()) return;
  const MujocoApi& api = Mujoco();
  const mjModel* model = native_->model;
  mjData* data = native_->data.get();
  Guarded([&] {
    std::copy_n(controls, native_->num_controls, native_->controls);
    // the controls are the same in all substeps
    for (std::int32_t i = 0; i < substeps; ++i) api.step(model, data);
    // mj_step leaves these out, and few tasks read them
    if (contact_forces) api.rne_post_constraint(model, data);
  });
  ThrowWarnings();
}

// MuJoCo continues after a warning; where numbers were bad, from a state that it has reset itself.
void Physics::ThrowWarnings() {
  for (int i = 0; i < kNumWarnings; ++i) {
    if (native_->warnings[i].number == 0) [[likely]] continue;
    const std::string said = LastMujocoWarning();
    throw EngineError(std::string("the simulation cannot go on, ") + kWarnings[i] +
                      (said.empty() ? "" : " (MuJoCo: " + said + ")"));
  }
}

// Apart from mjSTATE_INTEGRATION, a step depends on the model, and on these parts of mjData:
//   which trees sleep, for how long others have been quiet, and all that was computed for those
//     that sleep (tree_asleep and what mj_updateSleep makes of it): Load refuses such models;
//   data of plugins outside of plugin_state (plugin_data): MuJoCo's own plugins keep only data there
//     that they compute anew. A user's plugin that keeps more is not saved;
//   data of users' callbacks.
// All else is in mjSTATE_INTEGRATION (warm starts, plastic state, buffers of delays and intervals,
// plugin_state), or each step computes it from that (islands, contacts, sensors, constraints).
void Physics::Save(StateWriter& writer) const {
  const MujocoApi& api = Mujoco();
  const auto size = static_cast<std::size_t>(api.state_size(native_->model, Release().saved_state));
  // mjSTATE_INTEGRATION, as the engine packs it
  std::vector<double> state(size);
  api.get_state(native_->model, native_->data.get(), state.data(), Release().saved_state);
  writer.Put(static_cast<std::int32_t>(MujocoVersion()));
  writer.Put(static_cast<std::uint64_t>(size));
  writer.PutBytes({reinterpret_cast<const std::uint8_t*>(state.data()), size * sizeof(double)});
  SaveOwn(writer);
}

Physics::SavedNumbers Physics::ReadNumbers(StateReader& reader) {
  SavedNumbers saved{reader.Get<std::int32_t>(), {}};
  const auto size = reader.Get<std::uint64_t>();
  // checked before memory is allocated, because a damaged size may be any number
  if (size > reader.rest().size() / sizeof(double)) throw SpecError("is shorter than its parts");
  const auto bytes = reader.GetBytes(size * sizeof(double));
  saved.numbers.resize(size);
  std::memcpy(saved.numbers.data(), bytes.data(), bytes.size());
  return saved;
}

void Physics::Load(StateReader& reader) {
  const MujocoApi& api = Mujoco();
  const mjModel* model = model_->native_->model.get();
  mjData* data = native_->data.get();
  const SavedNumbers saved = ReadNumbers(reader);
  // the packed numbers differ between releases, and the bytes do not describe them
  if (saved.release != MujocoVersion()) {
    throw SpecError("is of MuJoCo " + VersionText(saved.release) + ", this is " +
                    VersionText(MujocoVersion()));
  }
  const std::vector<double>& state = saved.numbers;
  const auto expected = static_cast<std::size_t>(api.state_size(model, Release().saved_state));
  if (state.size() != expected) {
    throw SpecError("has " + std::to_string(state.size()) + " numbers of a model with " +
                    std::to_string(expected));
  }
  if (Sleeps(model_->native_->fields, model)) {
    throw SpecError("is of a model whose bodies may sleep, and MuJoCo's states do not hold which "
                    "of them do: a simulation would go on otherwise. Leave out <flag "
                    "sleep=\"enable\"/> in " + model_->xml_path() + " to set states");
  }
  CheckNumbers(model_->native_->fields, model, state);
  // loaded first, because the simulation continues with its own model
  LoadOwn(reader);
  model = native_->model;
  Guarded([&] {
    // warnings and all else that a state lacks begin anew
    api.reset_data(model, data);
  });
  const std::vector<double> without = NumbersBesideLanes();
  Guarded([&] { api.set_state(model, data, state.data(), Release().saved_state); });
  BeginAnew();
  // a state may also have, for example, applied forces, which only MuJoCo handles
  native_->in_lanes &= NumbersBesideLanes() == without;
}

}  // namespace rollouts
