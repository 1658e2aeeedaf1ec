// SPDX-License-Identifier: Apache-2.0
// The numbers of Box2D's velocity solver for up to 16 islands of equal structure, number by number:
// each array has a lane for every island.
#pragma once

#include <cstdint>

namespace rollouts {

inline constexpr std::int32_t kIslandLanes = 16;

struct alignas(64) LaneFloats {
  float at[kIslandLanes] = {};
};
// -1: yes, 0: no, as comparisons of vectors return.
struct alignas(64) LaneFlags {
  std::int32_t at[kIslandLanes] = {};
};
struct LanePoints {
  LaneFloats x, y;
};

// Names are those of b2RevoluteJoint; `a`, `b` are the places of its bodies, the same in all lanes.
struct HingeLanes {
  std::int32_t a = 0;
  std::int32_t b = 0;
  bool any_limited = false;
  LaneFlags motor_on, limited, at_lower, at_upper;
  LanePoints arm_a, arm_b;  // from the bodies' centres to the joint
  LaneFloats inv_mass_a, inv_mass_b, inv_inertia_a, inv_inertia_b;
  LaneFloats motor_mass, motor_speed, max_motor_impulse;
  // the columns of the matrix of effective mass, and terms for solving with it
  LaneFloats ex[3], ey[3], ez[3], ey_cross_ez[3];
  LaneFloats inverse_det_22, inverse_det_33;
  // read and written
  LaneFloats motor_impulse, impulse[3];
};

// Names are those of b2ContactVelocityConstraint.
struct ContactPointLanes {
  LanePoints arm_a, arm_b;
  LaneFloats normal_mass, tangent_mass, velocity_bias;
  LaneFloats normal_impulse, tangent_impulse;  // read and written
};

// An island with more than these is solved alone.
inline constexpr std::int32_t kMaxIslandBodies = 6;  // bodies that move
inline constexpr std::int32_t kMaxIslandHinges = 4;
inline constexpr std::int32_t kMaxIslandContacts = 6;

struct ContactLanes {
  bool any_one = false;  // whether any lane has one point, or two
  bool any_two = false;
  LaneFlags one, two;
  // lanes that have this body; none where it does not move
  LaneFlags is_a[kMaxIslandBodies], is_b[kMaxIslandBodies];
  bool any_a[kMaxIslandBodies] = {};
  bool any_b[kMaxIslandBodies] = {};
  LaneFloats inv_mass_a, inv_mass_b, inv_inertia_a, inv_inertia_b;
  LanePoints normal;
  LaneFloats friction, tangent_speed;
  LaneFloats k_ex[2], k_ey[2], mass_ex[2], mass_ey[2];
  ContactPointLanes points[2];
};

struct BodyLanes {
  LaneFloats x, y, w;
};

struct IslandBlock {
  std::int32_t iterations = 0;
  std::int32_t lanes = 0;
  std::int32_t num_bodies = 0;
  std::int32_t num_hinges = 0;
  std::int32_t num_contacts = 0;  // the largest number in any lane
  BodyLanes bodies[kMaxIslandBodies];
  HingeLanes hinges[kMaxIslandHinges];
  ContactLanes contacts[kMaxIslandContacts];
  LaneFlags failed;  // lanes in which an assertion of Box2D does not hold
};

// Solves all lanes, each with exactly the bits of Box2D's own solver.
struct IslandKernel {
  const char* name;
  std::int32_t lanes;  // in a vector
  void (*solve)(IslandBlock& block);
};
// Each is null where this build has no kernel for the instruction set.
const IslandKernel* BaselineIslandKernel();
const IslandKernel* Avx2IslandKernel();
const IslandKernel* Avx512IslandKernel();

}  // namespace rollouts
