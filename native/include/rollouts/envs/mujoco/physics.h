// SPDX-License-Identifier: Apache-2.0
// MuJoCo as its environments see it: a model, which they share, and a simulation, which each
// has. Names are those of MuJoCo's mjModel and mjData; its headers are not needed to read them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rollouts {

class StateReader;
class StateWriter;

// What is read of a model.
struct ModelView {
  std::int32_t nq = 0;       // positions
  std::int32_t nv = 0;       // velocities
  std::int32_t nu = 0;       // actuators
  std::int32_t nbody = 0;    // bodies, the world is the first
  std::int32_t nsite = 0;
  std::int32_t ntendon = 0;
  double timestep = 0;       // seconds
  const double* qpos0 = nullptr;      // (nq)
  const double* body_mass = nullptr;  // (nbody)
  const void* engine_model = nullptr;  // the mjModel, for engines/ alone
};

// What is read of a simulation. The arrays are MuJoCo's own and change with every step. Those
// that depend on positions lag one substep behind qpos, as MuJoCo leaves them after mj_step.
struct DataView {
  const double* qpos = nullptr;             // (nq)
  const double* qvel = nullptr;             // (nv)
  const double* ctrl = nullptr;             // (nu)
  const double* xpos = nullptr;             // (nbody, 3) of bodies
  const double* xipos = nullptr;            // (nbody, 3) of their centres of mass
  const double* site_xpos = nullptr;        // (nsite, 3)
  const double* cinert = nullptr;           // (nbody, 10)
  const double* cvel = nullptr;             // (nbody, 6)
  const double* cfrc_ext = nullptr;         // (nbody, 6)
  const double* qfrc_actuator = nullptr;    // (nv)
  const double* qfrc_constraint = nullptr;  // (nv)
  const double* ten_length = nullptr;       // (ntendon)
  const double* ten_velocity = nullptr;     // (ntendon)
  const void* engine_data = nullptr;        // the mjData, for engines/ alone
};

// An mjModel, made from an XML file. Shared by every simulation in the process that asks for
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

  const ModelView& view() const { return view_; }
  const std::string& xml_path() const { return xml_path_; }
  // What an actuator takes; infinite where the model does not limit it.
  Range ControlRange(std::int32_t actuator) const;
  // Throws SpecError when there is no such body.
  std::int32_t BodyId(const std::string& name) const;

 private:
  friend class Physics;
  struct Native;
  explicit PhysicsModel(const std::string& xml_path);

  const std::string xml_path_;
  std::unique_ptr<Native> native_;
  ModelView view_;
};

// An mjData. Made in the thread that will step it; used by one thread at a time.
class Physics {
 public:
  // Throws EngineError.
  explicit Physics(std::shared_ptr<const PhysicsModel> model);
  ~Physics();

  const PhysicsModel& model() const { return *model_; }
  const DataView& view() const { return view_; }

  // mj_resetData, or the same to a keyframe's activations and controls, then these positions
  // (nq) and velocities (nv), mj_forward.
  void Reset(const double* qpos, const double* qvel, std::int32_t keyframe = -1);

  // Steps `substeps` times with these controls (nu), then computes contact forces
  // (mj_rnePostConstraint) where they are wanted. Throws EngineError when MuJoCo fails or warns:
  // numbers that are not finite or huge, a singular inertia, too many contacts. The simulation
  // is then to be reset.
  void Step(const float* controls, std::int32_t substeps, bool contact_forces);

  // All that later steps depend on (mjSTATE_INTEGRATION), but not what was derived from it: what
  // the arrays above say of positions is undefined between Load and the next Step.
  void Save(StateWriter& writer) const;
  // Throws SpecError for a state of another model or release of MuJoCo.
  void Load(StateReader& reader);

 private:
  struct Native;
  void ThrowWarnings();

  const std::shared_ptr<const PhysicsModel> model_;
  std::unique_ptr<Native> native_;
  DataView view_;
};

}  // namespace rollouts
