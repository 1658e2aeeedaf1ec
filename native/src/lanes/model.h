// SPDX-License-Identifier: Apache-2.0
// The constants of a model, as steps read them: MuJoCo's arrays under MuJoCo's names, copied, and what
// follows from them once. Plain pointers alone, for the loops are compiled for several instruction
// sets, and functions of the standard library must not be compiled with them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rollouts/lanes/step.h"

namespace rollouts::lanes {

// mjtJoint, mjtGeom, mjtIntegrator, mjtSolver, mjtDisableBit: the numbers of MuJoCo.
enum JointKind : std::int32_t { kFree, kBall, kSlide, kHinge };
enum GeomKind : std::int32_t {
  kPlane = 0, kHeightField = 1, kSphere = 2, kCapsule = 3, kEllipsoid = 4, kCylinder = 5, kBox = 6
};
enum IntegratorKind : std::int32_t { kEuler, kRungeKutta4 };
enum SolverKind : std::int32_t { kPgs = 0, kNewton = 2 };
enum Disabled : std::int32_t {
  kNoConstraint = 1 << 0, kNoEquality = 1 << 1, kNoFrictionLoss = 1 << 2, kNoLimit = 1 << 3,
  kNoContact = 1 << 4, kNoSpring = 1 << 5, kNoDamper = 1 << 6, kNoGravity = 1 << 7, kNoClamp = 1 << 8,
  kNoWarmStart = 1 << 9, kNoParentFilter = 1 << 10, kNoActuation = 1 << 11, kNoRefSafe = 1 << 12,
  kNoSensor = 1 << 13, kNoMidPhase = 1 << 14, kNoEulerDamping = 1 << 15, kNoAutoReset = 1 << 16
};

inline constexpr int kMaxDofs = 64;
inline constexpr int kMaxContacts = 256;  // of the lanes of a vector together
inline constexpr int kMaxDualRows = 96;   // of PGS, which keeps a square of them
inline constexpr double kTiny = 1e-15;    // mjMINVAL
inline constexpr double kHuge = 1e10;     // mjMAXVAL

// How stiff a constraint is: solref and solimp, after MuJoCo's corrections.
struct Impedance {
  double least, most, width, middle, power;
  double K, B;      // stiffness and damping of the reference acceleration
  double margin;
  double diagonal;  // of the inverse inertia that the constraint sees
  bool flat;        // it does not depend on the position
};

enum class PairKind { kPlaneSphere, kPlaneCapsule, kPlaneCylinder, kSphereSphere, kSphereCapsule,
                      kCapsuleCapsule, kUncovered };

// Two geoms that may touch, in the order in which MuJoCo looks at them.
struct Pair {
  PairKind kind;
  std::int32_t geom[2], body[2], root[2], tree[2];  // tree -1: fixed to the world
  bool plane;               // the first geom is a plane of the world
  double normal[3], point[3];
  double radius[2], half[2];
  double margin;
  double reach;             // of the centres, or of the second one from the plane
  std::int32_t dim;
  double friction;
  Impedance impedance;
  double r_scale;           // of a pyramid's edges
  std::int32_t num_dofs;    // that move one of the geoms against the other, highest first
  const std::int32_t* dofs;
  const std::uint8_t* of_first;  // whether the dof moves the first geom
  bool branches;            // the dofs are not all on one path to the root
  bool turns;               // one of the dofs is of a joint that turns
};

// One end of the range of a joint, or the dry friction of a degree of freedom.
struct DofRow {
  std::int32_t dof, qpos, tree;
  double sign;   // of the dof in the constraint's row
  double range;  // position of the end
  double loss;   // dry friction; 0: a limit
  Impedance impedance;
};

// The order of a matrix's entries: for each row its columns, from the diagonal to the first.
struct Sparsity {
  std::int32_t size;
  const std::int32_t* adr;     // (nv) of the diagonal
  const std::int32_t* count;   // (nv)
  const std::int32_t* column;  // (size)
  const std::int32_t* place;   // (nv, nv) of a column in its row
};

enum class Transmission { kJoint, kTendon };
struct Actuator {
  Transmission transmission;
  std::int32_t dof, qpos, tendon;
  double gear, gain[3], bias[3];
  bool affine_gain, affine_bias, ctrl_limited, force_limited;
  double ctrl_range[2], force_range[2];
};

struct TendonJoint {
  std::int32_t dof, qpos;
  double coefficient;
};

enum class SensorKind { kSubtreeVelocity, kSubtreeCom, kVelocimeter, kGyro, kAccelerometer, kForce,
                        kTorque, kTouch, kFramePosition, kFrameAxis, kJointPosition, kJointVelocity,
                        kUncovered };
enum class FrameKind { kInertialBody, kBody, kGeom, kSite };
struct Sensor {
  SensorKind kind;
  FrameKind frame;
  std::int32_t object, adr, axis;
  double cutoff;
};

class Model {
 public:
  ModelSizes n;
  double timestep, tolerance, ls_tolerance;
  std::int32_t iterations, ls_iterations, disabled;
  bool runge_kutta, pgs, implicit_damping, warm_starts, fluid, has_actuation;
  double gravity[3], wind[3], density, viscosity;

  const std::int32_t *body_parentid, *body_rootid, *body_jntnum, *body_jntadr, *body_dofnum, *body_dofadr,
      *body_tree;  // body_tree: -1 where nothing moves it
  const double *body_pos, *body_quat, *body_ipos, *body_mass, *body_inertia, *body_imat, *body_mat;
  const double* body_box;              // (nbody, 3) sides of the inertia's box
  const double* inverse_subtree_mass;  // (nbody); 0 where it is nothing
  const std::uint8_t *body_turned, *body_inertia_turned, *body_offset, *body_inertia_offset;
  const std::int32_t *jnt_type, *jnt_qposadr, *jnt_dofadr;
  const double *jnt_pos, *jnt_axis, *jnt_stiffness, *qpos0, *qpos_spring;
  const std::uint8_t *jnt_offset, *jnt_springs;
  const double* jnt_force_range;            // (njnt, 2); infinite where there is none
  bool limits_joint_forces, springs;
  const std::int32_t *dof_bodyid, *dof_tree;
  const double *dof_armature, *dof_damping;
  const std::int32_t *tree_dofadr, *tree_dofnum;
  std::int32_t num_trees;
  const std::int32_t *geom_bodyid;
  const double *geom_pos, *geom_axis, *geom_mat;  // geom_axis: the third column of geom_mat
  const std::uint8_t* geom_touches;               // it is in a pair that moves
  const std::int32_t* site_bodyid;
  const double *site_pos, *site_mat, *site_size;
  const std::int32_t* site_type;
  const Actuator* actuators;
  const TendonJoint* tendon_joints;
  const std::int32_t *tendon_adr, *tendon_num;
  const Sensor* sensors;
  bool accelerations_sensed, forces_sensed;

  const Pair* pairs;
  std::int32_t num_pairs;
  const DofRow* dof_rows;
  std::int32_t num_dof_rows;
  std::int32_t max_pair_dofs, max_contacts;
  Sparsity tree, dense;
  const std::uint8_t* const* visits;  // of PGS: [rows] (iterations, rows)

  // Owned by the model, at addresses that stay.
  template <typename T>
  T* Keep(std::size_t count) {
    memory_.push_back(std::make_unique<std::uint8_t[]>(count * sizeof(T) + 64));
    auto address = reinterpret_cast<std::uintptr_t>(memory_.back().get());
    T* const first = reinterpret_cast<T*>((address + 63) / 64 * 64);
    for (std::size_t i = 0; i < count; ++i) new (first + i) T{};
    return first;
  }

 private:
  std::vector<std::unique_ptr<std::uint8_t[]>> memory_;
};

}  // namespace rollouts::lanes
