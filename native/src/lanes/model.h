// SPDX-License-Identifier: Apache-2.0
// The constants of a model for steps: copies of MuJoCo's arrays under MuJoCo's names, and values
// derived from them once. Uses only plain pointers: the loops are compiled for several instruction
// sets, and no functions of the standard library may be compiled with them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "rollouts/lanes/step.h"

namespace rollouts::lanes {

// MuJoCo's numbers of mjtJoint, mjtGeom, mjtIntegrator, mjtWrap, mjtSolver and mjtDisableBit.
enum JointKind : std::int32_t { kFree, kBall, kSlide, kHinge };
enum GeomKind : std::int32_t {
  kPlane = 0, kHeightField = 1, kSphere = 2, kCapsule = 3, kEllipsoid = 4, kCylinder = 5, kBox = 6
};
enum IntegratorKind : std::int32_t { kEuler, kRungeKutta4 };
enum WrapKind : std::int32_t { kWrapJoint = 1, kWrapPulley = 2, kWrapSite = 3 };
enum SolverKind : std::int32_t { kPgs = 0, kNewton = 2 };
enum Disabled : std::int32_t {
  kNoConstraint = 1 << 0, kNoEquality = 1 << 1, kNoFrictionLoss = 1 << 2, kNoLimit = 1 << 3,
  kNoContact = 1 << 4, kNoSpring = 1 << 5, kNoDamper = 1 << 6, kNoGravity = 1 << 7, kNoClamp = 1 << 8,
  kNoWarmStart = 1 << 9, kNoParentFilter = 1 << 10, kNoActuation = 1 << 11, kNoRefSafe = 1 << 12,
  kNoSensor = 1 << 13, kNoMidPhase = 1 << 14, kNoEulerDamping = 1 << 15, kNoAutoReset = 1 << 16
};

inline constexpr int kMaxDofs = 64;
inline constexpr int kMaxContacts = 256;  // in all lanes of a vector together
inline constexpr int kMaxDualRows = 192;  // rows of PGS, which keeps the products of all pairs
inline constexpr double kTiny = 1e-15;    // mjMINVAL
inline constexpr double kHuge = 1e10;     // mjMAXVAL

// Below, C is double, or a vector of double where every simulation has a model of its own. These
// structs have only members of type C, because a model's numbers are one array.

// A constraint's stiffness: solref and solimp, after MuJoCo's corrections.
template <typename C>
struct Impedance {
  C least, most, width, middle, power;
  C K, B;      // stiffness and damping of the reference acceleration
  C margin;
  C diagonal;  // for the inverse inertia that the constraint sees
};

template <typename C>
struct PairNumbers {
  C normal[3], point[3];  // a plane's normal, and a point on it
  C size[3];              // sizes of the second geom
  C radius[2], half[2];
  C margin;
  C reach;     // between the centres, or from the plane to the second one
  C range;     // the length of a tendon at the end of its range
  C friction;
  C r_scale;   // factor of R for a pyramid's edge
  Impedance<C> impedance;
};

template <typename C>
struct DofRowNumbers {
  C range;  // position of the end
  C loss;   // dry friction
  Impedance<C> impedance;
};

template <typename C>
struct ActuatorNumbers {
  C gear, gain[3], bias[3], ctrl_range[2], force_range[2];
};

template <typename C>
struct OptionNumbers {
  C timestep, tolerance, ls_tolerance, density, viscosity, gravity[3], wind[3];
};

// Kinds of getimpedance's curve: how impedance depends on distance.
enum class Curve : std::int32_t { kFlat, kLine, kParabola, kPower };

enum class PairKind : std::int32_t { kPlaneSphere, kPlaneCapsule, kPlaneCylinder, kPlaneEllipsoid, kPlaneBox,
                                     kSphereSphere, kSphereCapsule, kCapsuleCapsule, kTendon, kUncovered };

// Two geoms that may touch, in MuJoCo's order; or (kTendon) an end of a tendon's range, which makes
// a row like a contact without friction.
struct Pair {
  PairKind kind;
  Curve curve;
  std::int32_t geom[2], body[2], root[2], tree[2];  // tree -1: fixed to the world; body -1: tendon
  std::int32_t tendon, upper;
  std::int32_t plane;       // the first geom is a plane of the world
  std::int32_t dim;
  std::int32_t num_dofs;    // dofs that move one of the geoms against the other, highest first
  std::int32_t branches;    // the dofs are not all on one path to the root
  std::int32_t turns;       // one of the dofs belongs to a joint that turns
  const std::int32_t* dofs;
  const std::uint8_t* of_first;  // whether the dof moves the first geom
};

// One end of the range of a joint, or the dry friction of a degree of freedom.
struct DofRow {
  std::int32_t dof, qpos, tree;
  std::int32_t dry;
  double sign;  // sign of the dof in the constraint's row
  Curve curve;
};

// The order of a sparse matrix's entries: the columns of each row, from the diagonal to the first.
struct Sparsity {
  std::int32_t size;
  const std::int32_t* adr;     // (nv) of the diagonal
  const std::int32_t* count;   // (nv)
  const std::int32_t* column;  // (size)
  const std::int32_t* place;   // (nv, nv) of a column in its row
};

struct Actuator {
  std::int32_t on_tendon;
  std::int32_t dof, qpos, tendon;
  std::int32_t affine_gain, affine_bias, ctrl_limited, force_limited;
};

struct TendonJoint {
  std::int32_t dof, qpos;
};

// A point of a tendon that goes from site to site.
struct TendonPoint {
  std::int32_t site, body, root;
  std::uint64_t dofs;  // dofs that move it, as bits
};

// A tendon: a sum of joints, or a path along points.
struct Tendon {
  std::int32_t adr, num;  // first and number of its joints or points
  std::int32_t spatial;
  std::int32_t num_dofs, moments;  // length of `dofs`; index of the first moment
  const std::int32_t* dofs;        // dofs that change a path's length, highest first
};

enum class SensorKind { kSubtreeVelocity, kSubtreeCom, kVelocimeter, kGyro, kAccelerometer, kForce,
                        kTorque, kTouch, kFramePosition, kFrameAxis, kJointPosition, kJointVelocity,
                        kUncovered };
enum class FrameKind { kInertialBody, kBody, kGeom, kSite };
struct Sensor {
  SensorKind kind;
  FrameKind frame;
  std::int32_t object, adr, dim, axis;
  std::int32_t cuts;  // whether it has a cutoff
};

// All of a model except its numbers.
struct Structure {
  ModelSizes n;
  std::int32_t iterations, ls_iterations, disabled;
  bool runge_kutta, pgs, implicit_damping, warm_starts, viscous, dense_fluid, has_actuation, springs,
      limits_joint_forces;

  const std::int32_t *body_parentid, *body_rootid, *body_jntnum, *body_jntadr, *body_dofnum, *body_dofadr,
      *body_tree;  // body_tree: -1 where nothing moves it
  const std::uint8_t *body_heavy, *subtree_heavy;  // whether there is mass
  // Flags: 0 where a computation would change nothing and is left out.
  const std::uint8_t *body_offset, *body_turned, *body_inertia_offset, *body_inertia_turned, *jnt_offset,
      *jnt_springs;
  const std::int32_t *jnt_type, *jnt_qposadr, *jnt_dofadr;
  const std::int32_t *dof_bodyid, *dof_tree;
  std::int32_t num_trees;
  const std::int32_t* geom_bodyid;
  const std::uint8_t* geom_touches;  // it is in a pair that moves
  const std::int32_t *site_bodyid, *site_type;
  const Actuator* actuators;
  const TendonJoint* tendon_joints;
  const TendonPoint* tendon_points;
  const Tendon* tendons;
  std::int32_t num_tendon_moments;
  const Sensor* sensors;
  bool accelerations_sensed;
  const Pair* pairs;
  const DofRow* dof_rows;
  std::int32_t num_pairs, num_dof_rows, max_pair_dofs, max_contacts;
  Sparsity tree, dense;
  const std::uint8_t* const* visits;  // for PGS: [rows] (iterations, rows)
};

// A model's numbers: MuJoCo's arrays under MuJoCo's names, and some derived from them.
template <typename C>
struct Numbers {
  OptionNumbers<C>* options;
  C *body_pos, *body_quat, *body_ipos, *body_mass, *body_inertia, *body_imat,
      *inverse_subtree_mass;
  // coefficients of a fluid's force on a body: for squared speeds (3) and spins (3), for spin and
  // speed (2)
  C *body_drag, *body_spin_drag, *body_friction;
  C *jnt_pos, *jnt_axis, *jnt_stiffness, *jnt_force_range, *qpos0, *qpos_spring;
  // dof_damping_step: damping times timestep, rounded before it is added, in vectors and scalars
  // alike
  C *dof_armature, *dof_damping, *dof_damping_step;
  C *geom_pos, *geom_axis, *geom_mat;  // geom_axis: the third column of geom_mat
  C *site_pos, *site_mat, *site_size;
  C *tendon_coefficient, *sensor_cutoff;
  ActuatorNumbers<C>* actuator_numbers;
  DofRowNumbers<C>* dof_row_numbers;
  PairNumbers<C>* pair_numbers;

  // Gives each number its place in one array, which may be null; returns the array's length.
  std::size_t Place(const Structure& m, C* first) {
    std::size_t used = 0;
    const auto take = [&](auto*& array, std::int64_t count) {
      using T = std::remove_reference_t<decltype(*array)>;
      array = first ? reinterpret_cast<T*>(first + used) : nullptr;
      used += static_cast<std::size_t>(count) * (sizeof(T) / sizeof(C));
    };
    const std::int64_t nb = m.n.nbody, nj = m.n.njnt, ng = m.n.ngeom, ns = m.n.nsite;
    take(options, 1);
    take(body_pos, 3 * nb);
    take(body_quat, 4 * nb);
    take(body_ipos, 3 * nb);
    take(body_mass, nb);
    take(body_inertia, 3 * nb);
    take(body_imat, 9 * nb);
    take(body_drag, 3 * nb);
    take(body_spin_drag, 3 * nb);
    take(body_friction, 2 * nb);
    take(inverse_subtree_mass, nb);
    take(jnt_pos, 3 * nj);
    take(jnt_axis, 3 * nj);
    take(jnt_stiffness, nj);
    take(jnt_force_range, 2 * nj);
    take(qpos0, m.n.nq);
    take(qpos_spring, m.n.nq);
    take(dof_armature, m.n.nv);
    take(dof_damping, m.n.nv);
    take(dof_damping_step, m.n.nv);
    take(geom_pos, 3 * ng);
    take(geom_axis, 3 * ng);
    take(geom_mat, 9 * ng);
    take(site_pos, 3 * ns);
    take(site_mat, 9 * ns);
    take(site_size, 3 * ns);
    take(tendon_coefficient, m.n.nwrap);
    take(sensor_cutoff, m.n.nsensor);
    take(actuator_numbers, m.n.nu);
    take(dof_row_numbers, m.num_dof_rows);
    take(pair_numbers, m.num_pairs);
    return used;
  }
};

template <typename C>
struct ModelOf : Structure, Numbers<C> {};

class Model : public ModelOf<double> {
 public:
  const double* numbers = nullptr;  // all of them
  std::size_t num_numbers = 0;
  const std::uint8_t* ones = nullptr;  // as many as there are bodies or joints
  // Models with equal texts are stepped together: their structures are equal, except for the flags
  // of computations that zeros make unnecessary.
  std::string structure;
  std::uint64_t serial = 0;  // no other model of the process has it

  // The model that this one is a variant of, with equal structure; null: it is no variant. Numbers
  // at other places than `differs` are equal.
  std::shared_ptr<const Model> variant_of;
  const std::uint32_t* differs = nullptr;
  std::size_t num_differs = 0;
  const Model& root() const { return variant_of ? *variant_of : *this; }

  bool IsAlike(const Model& other) const {
    return &root() == &other.root() || structure == other.structure;
  }

  // Allocates an array that the model owns, at an address that does not change.
  template <typename T>
  T* Keep(std::size_t count) {
    memory_.push_back(std::make_unique<std::uint8_t[]>(count * sizeof(T) + 64));
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.back().get());
    T* const first = reinterpret_cast<T*>((address + 63) / 64 * 64);
    for (std::size_t i = 0; i < count; ++i) new (first + i) T{};
    return first;
  }

 private:
  std::vector<std::unique_ptr<std::uint8_t[]>> memory_;
};

}  // namespace rollouts::lanes
