// SPDX-License-Identifier: Apache-2.0
// MuJoCo as its environments see it: a model, which they share, and a simulation, which each
// has. Names are those of MuJoCo's mjModel and mjData; its headers are not needed to read them.
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

// The bit of an array of mjData by its name; 0 where none is needed.
DataArrays ArrayInLanes(std::string_view name);
// Simulations for a thread to step at once where lanes step them, and the cost of each then
// that costs so much with MuJoCo.
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

// An mjModel, made from an XML file or one of MuJoCo's binary .mjb. Shared by every simulation in the process that asks for
// the same file while anybody holds it and the file is not written. Thread-safe.
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
  // Names that it knows.
  std::vector<std::string> SettableFields() const;

  const ModelView& view() const { return view_; }
  const std::string& xml_path() const { return xml_path_; }
  // The numbers that an actuator takes; infinite where the model does not limit it.
  Range ControlRange(std::int32_t actuator) const;
  // Throws SpecError when the model has nothing of that kind and name.
  std::int32_t Id(ModelObject kind, const std::string& name) const;
  std::int32_t BodyId(const std::string& name) const { return Id(ModelObject::kBody, name); }

  // The reason why lanes (rollouts/lanes/step.h) do not step it; empty: they do. The first call
  // compares their steps with those of the MuJoCo that is loaded, which takes some milliseconds.
  const std::string& why_not_lanes() const;
  // Arrays that lanes leave otherwise than the MuJoCo that is loaded, and that no later step reads.
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

// An mjData. Made in the thread that will step it; used by one thread at a time. It may have
// own copies of single arrays of the model, which others then do not see; all else stays shared.
class Physics {
 public:
  // Throws EngineError.
  explicit Physics(std::shared_ptr<const PhysicsModel> model);
  ~Physics();

  const PhysicsModel& model() const { return *model_; }
  const DataView& view() const { return view_; }
  // As the model's view; its pointers lead to own copies where there are some.
  const ModelView& model_view() const { return model_view_; }

  // The values of an array of the model, such as "geom_pos", or of an entry of its options, such
  // as "opt.gravity", which from now on are this simulation's own. The first call copies them,
  // and the address stays the same then for the life of the simulation. T is double, or float,
  // std::int32_t or bool where MuJoCo has that. Constants that MuJoCo computes from them stay as
  // they are until DeriveConstants. Throws SpecError for what there is not, for a T that it is
  // not, and for what may not be changed: types, addresses, sizes and names, the geometry of
  // meshes and other assets, and constants.
  template <typename T = double>
  std::span<T> Own(const std::string& field) {
    const std::span<std::uint8_t> bytes = OwnBytes(field, TypeOf<T>());
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  // As Own, with values of the field's size and kind, and the address is nobody's. True when
  // constants depend on the field.
  bool SetField(const std::string& field, std::span<const double> values);
  // The values of a field as they are now, own or shared, or those of the shared model. Throws
  // as Own.
  std::vector<double> ReadField(const std::string& field, bool of_file) const;
  // mj_setConst: what MuJoCo computes from masses, inertias, gear and other arrays, made again
  // from this simulation's own. Use before a Reset: the simulation's state is lost.
  void DeriveConstants();
  // Own arrays get the shared model's values again.
  void RestoreModel();

  // mj_resetData, or the same to a keyframe's activations and controls, then these positions
  // (nq) and velocities (nv), mj_forward.
  void Reset(const double* qpos, const double* qvel, std::int32_t keyframe = -1);

  // Steps `substeps` times with these controls (nu), then computes contact forces
  // (mj_rnePostConstraint) where they are wanted. Throws EngineError when MuJoCo fails or warns:
  // numbers that are not finite or huge, a singular inertia, too many contacts. The simulation
  // is then to be reset.
  void Step(const float* controls, std::int32_t substeps, bool contact_forces);

  // Lets lanes step it, where they step its model. Every step is of this kind from now on.
  void UseLanes(const StepKind& kind);
  // A step that is due, and its controls (nu), which are read at once.
  struct DueStep {
    Physics* physics;
    const float* controls;
  };
  static constexpr std::size_t kMostDue = 64;
  // Makes due steps by lanes, those of a model and a kind side by side. The next Step or
  // StepUpToDate of such a simulation, which is to have the same controls, finds its work done.
  // All others are left to it: those without lanes, with a model or forces of their own, and those
  // in which something happens that lanes leave to MuJoCo.
  static void StepTogether(std::span<const DueStep> due);
  // Whether lanes have made the last step.
  bool stepped_by_lanes() const;

  // Below is how dm_control drives a simulation: what is derived from positions and velocities
  // is that of the current ones, at every start and after every step. mujoco_control.cpp.

  // mj_resetData, then ForwardUnactuated.
  void ResetData();
  StartView start();
  // mj_forward without actuators. Throws as Step.
  void ForwardUnactuated();
  // Steps `substeps` times with these controls (nu); null: with those that are set. What depends
  // on accelerations, such as touch, is that of the last substep. Throws as Step.
  void StepUpToDate(const float* controls, std::int32_t substeps);
  // As StepUpToDate without controls, by lanes where they step this simulation: for starts that come to
  // rest in many substeps. What derives from the positions is to be theirs.
  void SettleUpToDate(std::int32_t substeps);
  // Simulations of which a SettleUpToDate with so many substeps follows.
  struct DueRest {
    Physics* physics;
    std::int32_t substeps;
  };
  // As StepTogether: makes these by lanes, those of a model side by side, and SettleUpToDate finds its work
  // done.
  static void SettleTogether(std::span<const DueRest> due);
  // As ForwardUnactuated, but says with false what that throws.
  bool TryForwardUnactuated();
  // Computes what derives from positions and velocities, after Load. Throws as Step.
  void Refresh();
  std::int32_t num_contacts() const;
  // Asks its own model, as model_view() does.
  bool JointLimited(std::int32_t joint) const;
  // The model's first height field: where its heights begin in hfield_data, its rows, as many as
  // columns, and half of its width in metres. Throws SpecError where there is none such.
  struct HeightFieldView {
    std::size_t first = 0;
    std::int32_t num_rows = 0;
    double radius = 0;
  };
  HeightFieldView HeightField() const;

  // All that later steps depend on: mjSTATE_INTEGRATION and own arrays of the model, but not what
  // was derived from it: what the arrays above say of positions is undefined between Load and the
  // next Step or Refresh.
  void Save(StateWriter& writer) const;
  // Throws SpecError for a state of another model or release of MuJoCo.
  void Load(StateReader& reader);

  // The beginning of Save's bytes: MuJoCo's release, and the numbers of mjSTATE_INTEGRATION. Throws
  // SpecError where they are not there.
  struct SavedNumbers {
    std::int32_t release = 0;
    std::vector<double> numbers;
  };
  static SavedNumbers ReadNumbers(StateReader& reader);

 private:
  struct Native;
  void ThrowWarnings();
  // engines/mujoco_lanes/step.cpp
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
