// SPDX-License-Identifier: Apache-2.0
// The parts that Gymnasium's MuJoCo tasks have in common in the CPU pool: common options, the loop
// around the simulation, observations of either precision, saved states. task.h defines what a task
// is.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rollouts/core/env.h"
#include "rollouts/engines/mujoco_physics.h"
#include "rollouts/engines/observation_writer.h"
#include "rollouts/envs/mujoco/model_changes.h"
#include "rollouts/envs/mujoco/model_owner.h"
#include "rollouts/envs/mujoco/step_engine.h"
#include "rollouts/envs/mujoco/task.h"

namespace rollouts {

struct MujocoConfig : EngineConfig {
  std::string assets;    // folder of Gymnasium's models; set by rollouts/mujoco.py
  std::string xml_file;  // a model of Gymnasium, or a path: /..., ./... or ~/...
  std::int32_t frame_skip = 1;         // substeps of the physics per step
  std::string obs_dtype = "float64";   // float64 as in Gymnasium, or float32, with half the bytes
};

// A task's own options, and those of all tasks.
template <typename Task>
struct MujocoTaskConfig : MujocoConfig, Task::Config {
  MujocoTaskConfig() {
    xml_file = Task::kModel.name;
    frame_skip = Task::kModel.frame_skip;
  }
};

// Writes info values in the order of kInfos; debug builds check their number.
class InfoWriter {
 public:
  explicit InfoWriter(std::span<double> out) : rest_(out) {}
  void Put(double value) { Put(&value, 1); }
  void Put(const double* values, std::int32_t count) {
    assert(count <= std::ssize(rest_));
    std::copy_n(values, count, rest_.begin());
    rest_ = rest_.subspan(static_cast<std::size_t>(count));
  }
  bool full() const { return rest_.empty(); }

 private:
  std::span<double> rest_;
};

// The parts of a saved state that MuJoCo's states do not contain.
struct MujocoMemory {
  std::vector<double> infos;
  double before[2] = {};
  std::vector<double> shown;  // an observation
  ModelChanges changes;
};

// Functions in mujoco_env.cpp:
std::string ModelPath(const MujocoConfig& config);
// Throws SpecError for a model that a task cannot run with.
void CheckModel(const PhysicsModel& model, const ModelNeeds& needs);
// Throws SpecError where `option` names no body of the model.
std::int32_t BodyByNumberOrName(const PhysicsModel& model, const char* option,
                                const std::string& body);
// The space of the actuators. Throws SpecError for a model that is too large for a pool.
SpaceSpec ActionSpace(const PhysicsModel& model);
// A space without bounds. `obs_dtype` is "float64" or "float32".
SpaceSpec ObservationSpace(const std::string& obs_dtype, std::int32_t size);
// Throws SpecError for a model that is too large for a pool, or options that do not go together.
EnvSpec MakeMujocoSpec(const MujocoConfig& config, const PhysicsModel& model,
                       std::span<const InfoSpec> infos, std::int32_t observation_size,
                       std::int32_t substep_ns, DataArrays reads);
void SaveMujoco(const Physics& physics, const MujocoMemory& memory, std::vector<std::uint8_t>& out);
// `memory` has the sizes that the state must have; `pixels` may be null. Throws SpecError.
void LoadMujoco(Physics& physics, MujocoMemory& memory, PixelView* pixels,
                std::span<const std::uint8_t> state);

template <typename TaskOfEnv>
class MujocoEnv : public ModelOwner {
 public:
  using Task = TaskOfEnv;
  using Config = MujocoTaskConfig<Task>;
  using Action = float;
  using Obs = std::uint8_t;  // bytes: the dtype is an option

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("assets", config.assets);
    visit("xml_file", config.xml_file);
    visit("frame_skip", config.frame_skip);
    visit("obs_dtype", config.obs_dtype);
    EngineConfig::VisitEngine(config, visit);
    Task::VisitConfig(config, visit);
  }
  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Positive("frame_skip", config.frame_skip);
    check.OneOf("obs_dtype", config.obs_dtype, {"float64", "float32"});
    EngineConfig::CheckEngine(config, check);
  }

  // Batches hold the model, so that environments and specs find it.
  static std::shared_ptr<const void> Share(const Config& config) {
    return PixelView::Share(PhysicsModel::Get(ModelPath(config)), config);
  }

  // Throws EngineError for a model that MuJoCo cannot read, SpecError for one that the task
  // cannot use.
  static EnvSpec MakeSpec(const Config& config) {
    const MujocoEnv env(config);
    return MakeMujocoSpec(config, env.physics_.model(), Task::kInfos, env.ObservationSize(),
                          Task::kSubstepNs, Task::kReads);
  }

  explicit MujocoEnv(const Config& config)
      : ModelOwner(PhysicsModel::Get(ModelPath(config)), config),
        config_(config),
        task_(config_, CheckedModel(physics_.model())),
        sim_{physics_.model_view(), physics_.view(),
             physics_.model_view().timestep * config.frame_skip},
        start_(static_cast<std::size_t>(sim_.model.nq + sim_.model.nv)) {
    std::int64_t values = 0;
    for (const InfoSpec& info : Task::kInfos) {
      values += info.length == kPerTendon ? sim_.model.ntendon : info.size();
    }
    infos_.resize(static_cast<std::size_t>(values));
    ChooseEngine(config, {.substeps = config.frame_skip,
                          .contact_forces = Task::ContactForces(config),
                          .reads = Task::kReads});
  }

  void Reset(Rng& rng, bool /*forced*/) {
    changes_.BeginEpisode(physics_, rng);
    UpdateDt();
    double* const qpos = start_.data();
    double* const qvel = qpos + sim_.model.nq;
    std::copy_n(sim_.model.qpos0, sim_.model.nq, qpos);
    std::fill_n(qvel, sim_.model.nv, 0.0);
    task_.DrawStart(config_, sim_.model, rng, qpos, qvel);
    physics_.Reset(qpos, qvel);
    ForgetPicture();
    shown_.clear();
    std::fill(infos_.begin(), infos_.end(), 0.0);
    InfoWriter infos(infos_);
    task_.AfterReset(config_, sim_, infos);
  }

  StepResult Step(const Action* action, Rng& /*rng*/) {
    physics_.Step(action, config_.frame_skip, Task::ContactForces(config_));
    ForgetPicture();
    shown_.clear();
    InfoWriter infos(infos_);
    const StepResult result = task_.AfterStep(config_, sim_, action, infos);
    // a task that leaves out an info would report the last step's value again
    assert(infos.full());
    return result;
  }

  void Observe(Obs* obs) const {
    ObserveBy([&](Obs* out) { return ObserveState(out); }, obs);
  }

  void WriteInfo(double* values) const { std::copy(infos_.begin(), infos_.end(), values); }

  // Arrays of a simulation that depend on positions are not part of MuJoCo's states, so the
  // observation, infos and the task's memory are saved as well.
  void SaveState(std::vector<std::uint8_t>& out) const {
    MujocoMemory memory{infos_, {task_.before[0], task_.before[1]}, shown_, changes_};
    if (memory.shown.empty()) {
      memory.shown.resize(static_cast<std::size_t>(ObservationSize()));
      ObservationWriter writer(reinterpret_cast<std::uint8_t*>(memory.shown.data()), false);
      task_.Observe(config_, sim_, writer);
    }
    SaveMujoco(physics_, memory, out);
    SavePicture(out);
  }
  void LoadState(std::span<const std::uint8_t> state) {
    MujocoMemory memory{infos_, {}, std::vector<double>(ObservationSize()), {}};
    LoadMujoco(physics_, memory, pixels_.get(), state);
    UpdateDt();
    std::copy(std::begin(memory.before), std::end(memory.before), task_.before);
    infos_ = std::move(memory.infos);
    shown_ = std::move(memory.shown);
    changes_ = std::move(memory.changes);
  }

 private:
  static const PhysicsModel& CheckedModel(const PhysicsModel& model) {
    CheckModel(model, Task::kNeeds);
    return model;
  }

  void UpdateDt() { sim_.dt = physics_.model_view().timestep * config_.frame_skip; }

  std::int64_t ObserveState(Obs* obs) const {
    ObservationWriter writer(obs, config_.obs_dtype == "float32");
    if (shown_.empty()) {
      task_.Observe(config_, sim_, writer);
    } else {
      writer.Put(shown_.data(), static_cast<std::int32_t>(shown_.size()));
    }
    return writer.bytes();
  }

  std::int32_t ObservationSize() const {
    ObservationWriter counter(nullptr, false);
    task_.Observe(config_, sim_, counter);
    return counter.size();
  }

  const Config config_;
  Task task_;
  Simulation sim_;
  std::vector<double> start_;  // positions, then velocities
  std::vector<double> infos_;
  std::vector<double> shown_;  // the observation of a loaded state; empty after the next step
};

}  // namespace rollouts
