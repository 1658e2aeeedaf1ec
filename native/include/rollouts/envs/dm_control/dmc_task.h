// SPDX-License-Identifier: Apache-2.0
// Tasks of the DeepMind Control Suite in the CPU pool: one interface for all, which DmControl uses.
// Each task is in a header beside this one (suite_task.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "rollouts/core/rng.h"
#include "rollouts/engines/mujoco_physics.h"
#include "rollouts/envs/dm_control/suite_task.h"
#include "rollouts/envs/mujoco/task_facts.h"

namespace rollouts::dmc {

class Task {
 public:
  virtual ~Task() = default;

  // Makes the changes of the model that dm_control makes in initialize_episode, through
  // Physics::Own, before Physics::ResetData. Draws all of them every time.
  virtual void DrawModel(Rng&) {}
  // Makes the rest of initialize_episode, between Physics::ResetData and ForwardUnactuated.
  virtual void DrawStart(Rng& rng) = 0;
  // Substeps in which a start comes to rest, before the episode's time begins.
  virtual std::int32_t SubstepsToRest() const { return 0; }
  // Called, like the functions below, when all values derived from positions and velocities are up
  // to date.
  virtual double Reward() const = 0;
  virtual bool Terminated() const { return false; }
  virtual void Observe(Observation& obs) const = 0;
  // Arrays of the simulation that the task reads besides qpos, qvel, act and ctrl.
  virtual DataArrays Reads() const { return kAllArrays & ~kQacc; }
  // The task's own state, from DrawStart or the step before.
  virtual std::span<double> Memory() { return {}; }
};

// Calls `draw`, which draws positions, and then Physics::ForwardUnactuated, again and again until
// nothing touches. Throws EngineError after many tries, and also what ForwardUnactuated throws
// unless `forgives`.
void DrawApart(Physics& physics, bool forgives, const std::function<void()>& draw);
// The name of a type.
std::string NameOf(const std::type_info& type);

// Parts of a model by name; throws SpecError where there is no such part.
class ModelNames {
 public:
  explicit ModelNames(const PhysicsModel& model) : model_(model) {}

  std::int32_t Body(const char* name) const { return model_.Id(ModelObject::kBody, name); }
  std::int32_t Geom(const char* name) const { return model_.Id(ModelObject::kGeom, name); }
  std::int32_t Site(const char* name) const { return model_.Id(ModelObject::kSite, name); }
  std::int32_t Light(const char* name) const { return model_.Id(ModelObject::kLight, name); }
  std::int32_t Joint(const char* name) const { return model_.Id(ModelObject::kJoint, name); }
  // Index of a sensor's first number.
  std::int32_t Sensor(const char* name) const {
    return model_.view().sensor_adr[model_.Id(ModelObject::kSensor, name)];
  }
  // Indices of a joint's first position and velocity.
  std::int32_t Position(const char* joint) const { return model_.view().jnt_qposadr[Joint(joint)]; }
  std::int32_t Velocity(const char* joint) const { return model_.view().jnt_dofadr[Joint(joint)]; }

 private:
  const PhysicsModel& model_;
};

// Changes fields of a model.
class ChangedModel {
 public:
  explicit ChangedModel(Physics& physics) : physics_(physics) {}
  void Set(const char* field, std::int32_t at, double value);

 private:
  Physics& physics_;
};

// Records a task's changes, in place of a ChangedModel.
struct NotedChanges {
  std::vector<TaskFacts::ModelValue> changes;
  void Set(const char* field, std::int32_t at, double value) { changes.push_back({field, at, value}); }
};

// An episode's start, which tasks draw; writes it into a simulation.
class HostStart {
 public:
  explicit HostStart(Physics& physics)
      : model(physics.model_view()),
        qpos(physics.start().qpos),
        qvel(physics.start().qvel),
        act(physics.start().act),
        physics_(physics) {}

  bool JointLimited(std::int32_t joint) const { return physics_.JointLimited(joint); }
  double BodyPlace(std::int32_t body, std::int32_t axis) const {
    return physics_.view().xpos[3 * body + axis];
  }
  void Put(DrawnField field, std::int32_t at, double value);
  // Draws the bowl that quadruped escapes from. Throws SpecError where the model has none.
  void DrawBowl(Rng& rng);

  const ModelView& model;
  double* const qpos;
  double* const qvel;
  double* const act;
  bool is_placed = false;

 private:
  Physics& physics_;
};

// A task of suite_task.h with its simulation.
template <typename T>
class HostTask final : public Task {
 public:
  template <typename... Arguments>
  explicit HostTask(Physics& physics, Arguments... arguments)
      : physics_(physics), task_(ModelNames(physics.model()), arguments...) {}

  void DrawModel(Rng& rng) override {
    ChangedModel model(physics_);
    task_.ChangeModel(model);
    HostStart start(physics_);
    task_.DrawModel(start, rng);
  }
  void DrawStart(Rng& rng) override {
    HostStart start(physics_);
    task_.MeasurePose(sim_);
    task_.Begin(start, rng);
    if constexpr (T::kIsApart) {
      DrawApart(physics_, T::kResetsTries, [&] { Try(start, rng); });
    } else {
      task_.Draw(start, rng);
    }
    task_.Finish(start, rng);
  }
  std::int32_t SubstepsToRest() const override { return T::kSubstepsToRest; }
  double Reward() const override { return task_.Reward(sim_); }
  bool Terminated() const override { return task_.Terminated(sim_); }
  void Observe(Observation& obs) const override { task_.Observe(sim_, obs); }
  DataArrays Reads() const override { return T::kReads; }
  std::span<double> Memory() override {
    if constexpr (T::kMeasures > 0) return task_.measures;
    return {};
  }

 private:
  void Try(HostStart& start, Rng& rng) {
    if constexpr (T::kResetsTries) {
      const std::vector<double> before(start.qpos, start.qpos + sim_.model.nq);
      physics_.ResetData();
      std::copy(before.begin(), before.end(), start.qpos);
    }
    task_.Draw(start, rng);
    if constexpr (T::kPlaces) {
      if (!start.is_placed) return;
      physics_.ForwardUnactuated();
      task_.Place(start, sim_.data);
    }
  }

  Physics& physics_;
  T task_;
  const Simulation sim_{physics_.model_view(), physics_.view(), 0};
};

// Functions of a task's type.
struct TaskKind {
  std::unique_ptr<Task> (*make)(Physics&);
  TaskFacts (*facts)(const std::shared_ptr<const PhysicsModel>&);
};

// One line of a domain's list.
struct TaskEntry {
  template <typename T, auto... kArguments>
  static std::unique_ptr<Task> MakeTask(Physics& physics) {
    return std::make_unique<HostTask<T>>(physics, kArguments...);
  }
  // The facts of a type; with a model, also those of the task.
  template <typename T, auto... kArguments>
  static TaskFacts Facts(const std::shared_ptr<const PhysicsModel>& model) {
    static_assert(std::is_trivially_copyable_v<T>);
    TaskFacts facts;
    facts.type = NameOf(typeid(T));
    facts.reads = T::kReads;
    facts.is_suite = true;
    facts.draws = T::kDraws;
    facts.is_apart = T::kIsApart;
    facts.places = T::kPlaces;
    facts.substeps_to_rest = T::kSubstepsToRest;
    if (!model) return facts;
    T task(ModelNames(*model), kArguments...);
    if constexpr (T::kMeasures > 0) {
      Physics physics(model);
      physics.ResetData();
      task.MeasurePose(Simulation{physics.model_view(), physics.view(), 0});
    }
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&task);
    facts.task.assign(bytes, bytes + sizeof(T));
    NotedChanges noted;
    task.ChangeModel(noted);
    facts.changes = noted.changes;
    return facts;
  }
  template <typename T, auto... kArguments>
  static constexpr TaskKind kKind{MakeTask<T, kArguments...>, Facts<T, kArguments...>};

  const char* id;
  double control_timestep;  // seconds of a step; 0: the model's own timestep
  std::int32_t substep_ns;  // rough cost of one substep on one core
  const TaskKind* kind;
  ModelCall model = {};
};

struct Domain {
  std::span<const TaskEntry> tasks;
  const char* header;  // relative to include/rollouts
};

// Every line of envs.cmake that names a domain. The registry defines it, and the next function.
std::span<const Domain> Domains();
// Throws SpecError for an id that no domain lists.
const TaskEntry& FindTask(const std::string& id);

}  // namespace rollouts::dmc
