// SPDX-License-Identifier: Apache-2.0
// A model and a simulation, in the form that tasks read on the host and in kernels. Names and
// layouts are those of MuJoCo's mjModel and mjData. `Number` is double, as in MuJoCo, or float, as
// in mujoco_warp.
#pragma once

#include "rollouts/core/platform.h"

namespace rollouts {

// The parts of a model that tasks read.
template <typename Number>
struct BasicModelView {
  std::int32_t nq = 0;       // positions
  std::int32_t nv = 0;       // velocities
  std::int32_t nu = 0;       // actuators
  std::int32_t nbody = 0;    // bodies, the world is the first
  std::int32_t nsite = 0;
  std::int32_t ntendon = 0;
  std::int32_t na = 0;           // states of actuators
  std::int32_t njnt = 0;         // joints
  std::int32_t nsensordata = 0;  // numbers of all sensors together
  double timestep = 0;           // seconds
  const Number* gravity = nullptr;             // (3)
  const Number* qpos0 = nullptr;               // (nq)
  const Number* body_mass = nullptr;           // (nbody)
  const Number* body_subtreemass = nullptr;    // (nbody)
  const std::int32_t* jnt_type = nullptr;      // (njnt) JointType
  const std::int32_t* jnt_qposadr = nullptr;   // (njnt) where its positions begin
  const std::int32_t* jnt_dofadr = nullptr;    // (njnt) where its velocities begin
  const Number* jnt_range = nullptr;           // (njnt, 2) where JointLimited
  const Number* geom_size = nullptr;           // (ngeom, 3)
  const Number* site_size = nullptr;           // (nsite, 3)
  const Number* hfield_size = nullptr;         // (nhfield, 4) of height fields
  const Number* key_qpos = nullptr;            // (nkey, nq) of keyframes
  const Number* key_qvel = nullptr;            // (nkey, nv)
  const Number* actuator_ctrlrange = nullptr;  // (nu, 2) see ControlRange
  const std::int32_t* sensor_adr = nullptr;    // (nsensor) where its numbers begin
  const void* engine_model = nullptr;          // the mjModel, for engines/ alone
};
using ModelView = BasicModelView<double>;

// mjtJoint
enum JointType : std::int32_t { kFreeJoint, kBallJoint, kSlideJoint, kHingeJoint };

// The arrays of a simulation that tasks read. They are MuJoCo's own and change with every step.
// Those that depend on positions lag one substep behind qpos, as mj_step leaves them.
template <typename Number>
struct BasicDataView {
  const Number* qpos = nullptr;             // (nq)
  const Number* qvel = nullptr;             // (nv)
  const Number* act = nullptr;              // (na)
  const Number* ctrl = nullptr;             // (nu)
  const Number* xpos = nullptr;             // (nbody, 3) of bodies
  const Number* xquat = nullptr;            // (nbody, 4)
  const Number* xmat = nullptr;             // (nbody, 9) rows of a rotation
  const Number* xipos = nullptr;            // (nbody, 3) of their centres of mass
  const Number* geom_xpos = nullptr;        // (ngeom, 3)
  const Number* geom_xmat = nullptr;        // (ngeom, 9)
  const Number* site_xpos = nullptr;        // (nsite, 3)
  const Number* site_xmat = nullptr;        // (nsite, 9)
  const Number* sensordata = nullptr;       // (nsensordata)
  const Number* subtree_com = nullptr;      // (nbody, 3)
  const Number* cinert = nullptr;           // (nbody, 10)
  const Number* cvel = nullptr;             // (nbody, 6)
  const Number* cfrc_ext = nullptr;         // (nbody, 6)
  const Number* qfrc_actuator = nullptr;    // (nv)
  const Number* qfrc_constraint = nullptr;  // (nv)
  const Number* ten_length = nullptr;       // (ntendon)
  const Number* ten_velocity = nullptr;     // (ntendon)
  const void* engine_data = nullptr;        // the mjData, for engines/ alone
};
using DataView = BasicDataView<double>;

// A simulation and its model, to read.
template <typename Number>
struct BasicSimulation {
  const BasicModelView<Number>& model;
  const BasicDataView<Number>& data;
  double dt;  // seconds of a step
};
using Simulation = BasicSimulation<double>;

// Bits for the arrays of a DataView that a task reads besides qpos, qvel, act and ctrl.
using DataArrays = std::uint32_t;
enum DataArray : DataArrays {
  kXpos = 1u << 0,
  kXquat = 1u << 1,
  kXmat = 1u << 2,
  kXipos = 1u << 3,
  kGeomXpos = 1u << 4,
  kGeomXmat = 1u << 5,
  kSiteXpos = 1u << 6,
  kSiteXmat = 1u << 7,
  kSensordata = 1u << 8,
  kCinert = 1u << 9,
  kCvel = 1u << 10,
  kQfrcActuator = 1u << 11,
  kQfrcConstraint = 1u << 12,
  kTenLength = 1u << 13,
  kTenVelocity = 1u << 14,
  kSubtreeCom = 1u << 15,
  kQacc = 1u << 16,  // not a part of a DataView
  kAllArrays = (1u << 17) - 1,
  kBeyondLanes = 1u << 31,  // other arrays, which lanes do not write
};

}  // namespace rollouts
