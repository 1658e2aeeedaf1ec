// SPDX-License-Identifier: Apache-2.0
// A task of the DeepMind Control Suite: what it draws at a start, shows and rewards. Each domain
// is a header beside this one and lists its tasks; the registry puts the lists together.
// Arithmetic follows dm_control's. Models are those of the dm-control package.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rollouts/core/rng.h"
#include "rollouts/engines/mujoco_physics.h"
#include "rollouts/engines/observation_writer.h"

namespace rollouts::dmc {

// A flat observation and, where they are asked for, the parts that it consists of.
class Observation : public ObservationWriter {
 public:
  static constexpr std::int32_t kScalar = 0;   // a part of one number, of shape ()
  static constexpr std::int32_t kVector = -1;  // shape (n); positive: (n / columns, columns)

  struct Part {
    const char* name;
    std::int32_t columns;
    std::int32_t first;  // element
  };

  // Either may be null.
  Observation(std::uint8_t* out, bool single, std::vector<Part>* parts = nullptr)
      : ObservationWriter(out, single), parts_(parts) {}

  // Names what is put from here to the next part.
  void Begin(const char* name, std::int32_t columns = kVector) {
    if (parts_) parts_->push_back({name, columns, size()});
  }
  void Scalar(const char* name, double value) {
    Begin(name, kScalar);
    Put(value);
  }
  void Vector(const char* name, const double* values, std::int32_t count) {
    Begin(name);
    Put(values, count);
  }

 private:
  std::vector<Part>* const parts_;
};

// Puts a vector (3) as seen in a frame whose axes are the columns of `rotation` (3, 3).
inline void PutInFrame(const double* vector, const double* rotation, Observation& obs) {
  for (std::int32_t i = 0; i < 3; ++i) {
    obs.Put(vector[0] * rotation[i] + vector[1] * rotation[3 + i] + vector[2] * rotation[6 + i]);
  }
}

class Task {
 public:
  explicit Task(Physics& physics)
      : physics_(physics), model_(physics.model_view()), data_(physics.view()) {}
  virtual ~Task() = default;
  Task(const Task&) = delete;

  // The part of dm_control's initialize_episode that changes the model: Physics::Own, before
  // Physics::ResetData. All of it, every time.
  virtual void DrawModel(Rng&) {}
  // The rest of initialize_episode, between Physics::ResetData and ForwardUnactuated.
  virtual void DrawStart(Rng& rng) = 0;
  // Substeps in which a start comes to rest, before its episode's time begins.
  virtual std::int32_t SubstepsToRest() const { return 0; }
  // Called, as those below, when everything derived from positions and velocities is up to date.
  virtual double Reward() const = 0;
  virtual bool Terminated() const { return false; }
  virtual void Observe(Observation& obs) const = 0;
  // Arrays of the simulation that it reads beside qpos, qvel, act and ctrl.
  virtual DataArrays Reads() const { return kAllArrays & ~kQacc; }
  // The state from DrawStart or the step before, besides the simulation.
  virtual std::span<double> Memory() { return {}; }

 protected:
  // Arrays of named parts of the model; they stay where they are.
  const double* BodyPosition(const std::string& body) const {
    return data_.xpos + 3 * Id(ModelObject::kBody, body);
  }
  const double* BodyRotation(const std::string& body) const {
    return data_.xmat + 9 * Id(ModelObject::kBody, body);
  }
  const double* SitePosition(const std::string& site) const {
    return data_.site_xpos + 3 * Id(ModelObject::kSite, site);
  }
  const double* SiteRotation(const std::string& site) const {
    return data_.site_xmat + 9 * Id(ModelObject::kSite, site);
  }
  const double* GeomPosition(const std::string& geom) const {
    return data_.geom_xpos + 3 * Id(ModelObject::kGeom, geom);
  }
  const double* Sensor(const std::string& sensor) const {
    return data_.sensordata + model_.sensor_adr[Id(ModelObject::kSensor, sensor)];
  }
  // Indices of a joint's first position and velocity.
  std::int32_t PositionOf(const std::string& joint) const {
    return model_.jnt_qposadr[Id(ModelObject::kJoint, joint)];
  }
  std::int32_t VelocityOf(const std::string& joint) const {
    return model_.jnt_dofadr[Id(ModelObject::kJoint, joint)];
  }
  std::int32_t Id(ModelObject kind, const std::string& name) const {
    return physics_.model().Id(kind, name);
  }

  Physics& physics_;
  const ModelView& model_;
  const DataView& data_;
};

// The call by which a domain's module in dm_control writes the XML of a task's model.
struct ModelCall {
  const char* function = "get_model_and_assets";
  const char* arguments = "{}";  // by name; JSON
};
constexpr ModelCall ModelAndAssets(const char* arguments) {
  return {"get_model_and_assets", arguments};
}
constexpr ModelCall MakeModel(const char* arguments) { return {"make_model", arguments}; }

// One line of a domain's list.
struct TaskEntry {
  const char* id;
  double control_timestep;  // seconds of a step; 0: the model's own timestep
  std::int32_t substep_ns;  // rough cost of one substep on one core
  std::unique_ptr<Task> (*make)(Physics&);
  ModelCall model = {};
};

// For a TaskEntry: makes a T with these arguments.
template <typename T, auto... kArguments>
std::unique_ptr<Task> Make(Physics& physics) {
  return std::make_unique<T>(physics, kArguments...);
}

struct Domain {
  std::span<const TaskEntry> tasks;
  const char* header;  // relative to include/rollouts
};

// Every line of envs.cmake that names a domain. Defined by the registry, as the next.
std::span<const Domain> Domains();
// Throws SpecError for an id that no domain lists.
const TaskEntry& FindTask(const std::string& id);

}  // namespace rollouts::dmc
