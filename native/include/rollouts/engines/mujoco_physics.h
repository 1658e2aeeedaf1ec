// SPDX-License-Identifier: Apache-2.0
// MuJoCo for the environments that use it: a model, which environments share, and a simulation, one
// for each environment. Names are those of MuJoCo's mjModel and mjData; its headers are not needed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "rollouts/engines/mujoco_views.h"

namespace rollouts {

class ModelCopy;
class StateReader;
class StateWriter;

// Kinds of things that have names in a model.
enum class ModelObject { kBody, kJoint, kGeom, kSite, kSensor, kActuator, kTendon, kLight };

// The type of the values of a model's array; mjtBool is a byte.
enum class ModelValue : std::uint8_t { kDouble, kFloat, kInt, kBool, kOther };

// The bit of an mjData array, by its name; 0 where the array needs no bit.
DataArrays ArrayInLanes(std::string_view name);
// The number of simulations that lanes step at once in a thread, and the cost of each, given its
// cost with MuJoCo.
std::int32_t TogetherInLanes();
std::int32_t CostInLanesNs(std::int32_t cost_ns);

// The way in which a task steps its simulation, the same at every step.
struct StepKind {
  std::int32_t substeps = 1;
  bool up_to_date = false;      // by Physics::StepUpToDate, else by Physics::Step
  bool contact_forces = false;  // Physics::Step computes cfrc_ext, too
  DataArrays reads = kAllArrays;

  bool operator==(const StepKind&) const = default;
};

// Arrays for an episode's start, between Physics::ResetData and ForwardUnactuated.
struct StartView {
  double* qpos = nullptr;  // (nq)
  double* qvel = nullptr;  // (nv)
  double* act = nullptr;   // (na)
  double* time = nullptr;  // seconds
};

// An mjModel, made from an XML file or a binary .mjb file of MuJoCo. All simulations in the process
// that use the same file share it, until the last of them ends or the file changes. Thread-safe.
class PhysicsModel {
 public:
  struct Range {
    double low = 0;
    double high = 0;
  };

  // Throws EngineError when MuJoCo is not loaded or cannot read the file.
  static std::shared_ptr<const PhysicsModel> Get(const std::string& xml_path);
  ~PhysicsModel();

  // A field of the model: an array, such as "body_mass", or an entry of its options.
  struct Field {
    ModelValue type = ModelValue::kOther;
    std::size_t size = 0;             // values
    std::vector<std::int64_t> shape;  // as in MuJoCo's Python package
  };
  // Throws SpecError as Physics::Own.
  Field SettableField(const std::string& name) const;
  // Names that SettableField accepts.
  std::vector<std::string> SettableFields() const;

  const ModelView& view() const { return view_; }
  const std::string& xml_path() const { return xml_path_; }
  // The numbers that an actuator takes; infinite where the model does not limit it.
  Range ControlRange(std::int32_t actuator) const;
  // Throws SpecError when the model has nothing of that kind and name.
  std::int32_t Id(ModelObject kind, const std::string& name) const;
  std::int32_t BodyId(const std::string& name) const { return Id(ModelObject::kBody, name); }

  // The reason why lanes (rollouts/lanes/step.h) do not step this model; empty where they do. The
  // first call compares their steps with those of the loaded MuJoCo, which takes some milliseconds.
  const std::string& why_not_lanes() const;
  // Arrays in which lanes differ from the loaded MuJoCo, and that no later step reads.
  DataArrays unequal_in_lanes() const;

 private:
  friend class Physics;
  struct Native;
  const Native& WithLanes() const;
  explicit PhysicsModel(const std::string& xml_path);

  const std::string xml_path_;
  std::unique_ptr<Native> native_;
  ModelView view_;
};

// An mjData. Made in the thread that will step it; used by one thread at a time. It may have copies
// of single model arrays that only it uses; all others stay shared.
class Physics {
 public:
  // Throws EngineError.
  explicit Physics(std::shared_ptr<const PhysicsModel> model);
  ~Physics();

  const PhysicsModel& model() const { return *model_; }
  const DataView& view() const { return view_; }
  // The model's view, with pointers to this simulation's own copies where there are any.
  const ModelView& model_view() const { return model_view_; }

  // The values of a model array, such as "geom_pos", or of an entry of its options, such as
  // "opt.gravity", which from now on belong to this simulation alone. The first call copies them;
  // the address then stays the same as long as the simulation exists. T is double, or float,
  // std::int32_t or bool where MuJoCo has that type. Constants that MuJoCo computes from the values
  // stay unchanged until DeriveConstants. Throws SpecError for an unknown name, for another T, and
  // for arrays that may not be changed: types, addresses, sizes and names, the geometry of meshes
  // and other assets, and constants.
  template <typename T = double>
  std::span<T> Own(const std::string& field) {
    const std::span<std::uint8_t> bytes = OwnBytes(field, TypeOf<T>());
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  // Sets a field as through Own, with values of its size and kind. Returns whether constants depend
  // on the field.
  bool SetField(const std::string& field, std::span<const double> values);
  // The present values of a field, own or shared, or those of the shared model. Throws as Own.
  std::vector<double> ReadField(const std::string& field, bool of_file) const;
  // mj_setConst: computes anew, from this simulation's own arrays, what MuJoCo derives from masses,
  // inertias, gear and other arrays. Call before a Reset, because the simulation's state is lost.
  void DeriveConstants();
  // Gives own arrays the shared model's values again.
  void RestoreModel();

  // Calls mj_resetData, or resets to a keyframe's activations and controls; then sets these
  // positions (nq) and velocities (nv), and calls mj_forward.
  void Reset(const double* qpos, const double* qvel, std::int32_t keyframe = -1);

  // Steps `substeps` times with these controls (nu), then computes contact forces
  // (mj_rnePostConstraint) if `contact_forces`. Throws EngineError when MuJoCo fails or warns:
  // numbers that are not finite or huge, a singular inertia, too many contacts. The simulation must
  // be reset then.
  void Step(const float* controls, std::int32_t substeps, bool contact_forces);

  // Lets lanes step this simulation, if they can step its model. From now on every step must be of
  // this kind.
  void UseLanes(const StepKind& kind);
  // A step that is due, and its controls (nu), which are read at once.
  struct DueStep {
    Physics* physics;
    const float* controls;
  };
  static constexpr std::size_t kMostDue = 64;
  // Makes due steps by lanes, at once for simulations of equal model and kind. The next Step or
  // StepUpToDate of such a simulation must have the same controls, and then has nothing left to do.
  // Lanes leave other steps to that call: the steps of simulations without lanes or with own model
  // arrays or forces, and those in which something happens that only MuJoCo computes.
  static void StepTogether(std::span<const DueStep> due);
  // Tells if lanes have made the last step.
  bool stepped_by_lanes() const;

  // The functions below step a simulation as dm_control does: values derived from positions and
  // velocities are up to date at every start and after every step. See mujoco_control.cpp.

  // mj_resetData, then ForwardUnactuated.
  void ResetData();
  StartView start();
  // mj_forward without actuators. Throws as Step.
  void ForwardUnactuated();
  // Steps `substeps` times with these controls (nu), or with those already set if null. Values that
  // depend on accelerations, such as touch, are those of the last substep. Throws as Step.
  void StepUpToDate(const float* controls, std::int32_t substeps);
  // StepUpToDate without controls, by lanes where they step this simulation: for starts that come
  // to rest in many substeps. The values derived from positions must be up to date before.
  void SettleUpToDate(std::int32_t substeps);
  // Simulations for which SettleUpToDate follows with this number of substeps.
  struct DueRest {
    Physics* physics;
    std::int32_t substeps;
  };
  // Settles these simulations by lanes, at once for those of equal model, as StepTogether does;
  // SettleUpToDate then has nothing left to do.
  static void SettleTogether(std::span<const DueRest> due);
  // Calls ForwardUnactuated, and returns false where that throws.
  bool TryForwardUnactuated();
  // Computes what derives from positions and velocities, after Load. Throws as Step.
  void Refresh();
  std::int32_t num_contacts() const;
  // Tells if the joint is limited in this simulation's own model, as in model_view().
  bool JointLimited(std::int32_t joint) const;
  // The model's first height field: where its heights begin in hfield_data, the number of its rows
  // (it has as many columns), and half of its width in metres. Throws SpecError where there is no
  // such field.
  struct HeightFieldView {
    std::size_t first = 0;
    std::int32_t num_rows = 0;
    double radius = 0;
  };
  HeightFieldView HeightField() const;

  // Saves all that later steps depend on: mjSTATE_INTEGRATION and own model arrays. Derived values
  // are not saved: between Load and the next Step or Refresh, arrays that depend on positions are
  // undefined.
  void Save(StateWriter& writer) const;
  // Throws SpecError for a state of another model or release of MuJoCo.
  void Load(StateReader& reader);

  // The beginning of Save's bytes: MuJoCo's release, and the numbers of mjSTATE_INTEGRATION. Throws
  // SpecError where the bytes do not have them.
  struct SavedNumbers {
    std::int32_t release = 0;
    std::vector<double> numbers;
  };
  static SavedNumbers ReadNumbers(StateReader& reader);

 private:
  struct Native;
  void ThrowWarnings();
  // Tells if lanes have made the step already; in engines/mujoco_lanes/step.cpp.
  bool FoundDone();
  void BeginAnew();
  std::vector<double> NumbersBesideLanes() const;
  std::span<std::uint8_t> OwnBytes(const std::string& field, ModelValue type);
  ModelCopy& OwnedModel();
  void SaveOwn(StateWriter& writer) const;
  void LoadOwn(StateReader& reader);
  void UpdateModelView();

  template <typename T>
  static constexpr ModelValue TypeOf() {
    if constexpr (std::is_same_v<T, double>) return ModelValue::kDouble;
    if constexpr (std::is_same_v<T, float>) return ModelValue::kFloat;
    if constexpr (std::is_same_v<T, std::int32_t>) return ModelValue::kInt;
    if constexpr (std::is_same_v<T, bool>) return ModelValue::kBool;
    return ModelValue::kOther;
  }

  const std::shared_ptr<const PhysicsModel> model_;
  std::unique_ptr<Native> native_;
  ModelView model_view_;
  DataView view_;
};

}  // namespace rollouts
