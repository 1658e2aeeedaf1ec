// SPDX-License-Identifier: Apache-2.0
// Solves several islands at once, ROLLOUTS_ISLAND_LANES of them in a vector. Included once by one
// file for each instruction set. Every sum and product is Box2D's (b2RevoluteJoint.cpp,
// b2ContactSolver.cpp), in its order, so that each lane has Box2D's bits. Where lanes take
// different branches, all are computed, and each lane keeps its own.
#include "island_block.h"

namespace rollouts {
namespace {

typedef float Floats __attribute__((vector_size(4 * ROLLOUTS_ISLAND_LANES), may_alias));
typedef std::int32_t Flags __attribute__((vector_size(4 * ROLLOUTS_ISLAND_LANES), may_alias));

#define ROLLOUTS_INLINE [[gnu::always_inline]] inline

struct Point {
  Floats x, y;
};
struct Motion {
  Floats x, y, w;
};

ROLLOUTS_INLINE Floats Get(const LaneFloats& from, std::int32_t first) {
  return *reinterpret_cast<const Floats*>(from.at + first);
}
ROLLOUTS_INLINE Flags Get(const LaneFlags& from, std::int32_t first) {
  return *reinterpret_cast<const Flags*>(from.at + first);
}
ROLLOUTS_INLINE Point Get(const LanePoints& from, std::int32_t first) {
  return {Get(from.x, first), Get(from.y, first)};
}
ROLLOUTS_INLINE void Put(LaneFloats& to, std::int32_t first, Floats value) {
  *reinterpret_cast<Floats*>(to.at + first) = value;
}

// b2Min, b2Max, b2Clamp: for NaN, too, the results are Box2D's
ROLLOUTS_INLINE Floats Least(Floats a, Floats b) { return a < b ? a : b; }
ROLLOUTS_INLINE Floats Most(Floats a, Floats b) { return a > b ? a : b; }
ROLLOUTS_INLINE Floats Clamp(Floats a, Floats low, Floats high) {
  return Most(low, Least(a, high));
}
ROLLOUTS_INLINE Floats Dot(Point a, Point b) { return a.x * b.x + a.y * b.y; }
ROLLOUTS_INLINE Floats Cross(Point a, Point b) { return a.x * b.y - a.y * b.x; }
ROLLOUTS_INLINE Point Times(Floats a, Point b) { return {a * b.x, a * b.y}; }
ROLLOUTS_INLINE Motion Select(Flags flags, const Motion& a, const Motion& b) {
  return {flags ? a.x : b.x, flags ? a.y : b.y, flags ? a.w : b.w};
}

// The velocity of a body's point at `arm` relative to another body's.
ROLLOUTS_INLINE Point Apart(const Motion& a, const Motion& b, Point arm_a, Point arm_b) {
  return {b.x + -b.w * arm_b.y - a.x - -a.w * arm_a.y, b.y + b.w * arm_b.x - a.y - a.w * arm_a.x};
}

ROLLOUTS_INLINE void SolveHinge(HingeLanes& of, std::int32_t first, Motion& a, Motion& b) {
  const Floats inertia_a = Get(of.inv_inertia_a, first);
  const Floats inertia_b = Get(of.inv_inertia_b, first);
  {
    const Floats had = Get(of.motor_impulse, first);
    const Floats most = Get(of.max_motor_impulse, first);
    const Floats change = -Get(of.motor_mass, first) * (b.w - a.w - Get(of.motor_speed, first));
    const Floats now = Clamp(had + change, -most, most);
    const Floats given = now - had;
    const Flags on = Get(of.motor_on, first);
    Put(of.motor_impulse, first, on ? now : had);
    a.w = on ? a.w - inertia_a * given : a.w;
    b.w = on ? b.w + inertia_b * given : b.w;
  }

  const Point arm_a = Get(of.arm_a, first);
  const Point arm_b = Get(of.arm_b, first);
  const Point apart = Apart(a, b, arm_a, arm_b);
  const Floats ex_x = Get(of.ex[0], first), ex_y = Get(of.ex[1], first);
  const Floats ey_x = Get(of.ey[0], first), ey_y = Get(of.ey[1], first);
  const Floats inverse_22 = Get(of.inverse_det_22, first);
  Point right{-apart.x, -apart.y};
  Point given;
  Floats turn_a, turn_b;
  if (of.any_limited) {
    const Flags limited = Get(of.limited, first);
    const Floats ex_z = Get(of.ex[2], first), ey_z = Get(of.ey[2], first);
    const Floats ez_x = Get(of.ez[0], first), ez_y = Get(of.ez[1], first);
    const Floats ez_z = Get(of.ez[2], first);
    const Floats inverse_33 = Get(of.inverse_det_33, first);
    const Floats z = b.w - a.w;
    // Solve33
    const Floats full_x = -(inverse_33 * (apart.x * Get(of.ey_cross_ez[0], first) +
                                          apart.y * Get(of.ey_cross_ez[1], first) +
                                          z * Get(of.ey_cross_ez[2], first)));
    const Floats full_y = -(inverse_33 * (ex_x * (apart.y * ez_z - z * ez_y) +
                                          ex_y * (z * ez_x - apart.x * ez_z) +
                                          ex_z * (apart.x * ez_y - apart.y * ez_x)));
    const Floats full_z = -(inverse_33 * (ex_x * (ey_y * z - ey_z * apart.y) +
                                          ex_y * (ey_z * apart.x - ey_x * z) +
                                          ex_z * (ey_x * apart.y - ey_y * apart.x)));
    const Floats had = Get(of.impulse[2], first);
    const Floats next = had + full_z;
    const Floats zero = {};
    const Flags lets_go = limited & ((Get(of.at_lower, first) & (next < zero)) |
                                     (Get(of.at_upper, first) & (next > zero)));
    const Flags full = limited & ~lets_go;
    right.x = lets_go ? right.x + had * ez_x : right.x;
    right.y = lets_go ? right.y + had * ez_y : right.y;
    const Point reduced{inverse_22 * (ey_y * right.x - ey_x * right.y),
                        inverse_22 * (ex_x * right.y - ex_y * right.x)};
    given = {full ? full_x : reduced.x, full ? full_y : reduced.y};
    Put(of.impulse[2], first, lets_go ? zero : (full ? next : had));
    const Floats turn = lets_go ? -had : full_z;
    const Floats cross_a = Cross(arm_a, given);
    const Floats cross_b = Cross(arm_b, given);
    turn_a = limited ? cross_a + turn : cross_a;
    turn_b = limited ? cross_b + turn : cross_b;
  } else {
    given = {inverse_22 * (ey_y * right.x - ey_x * right.y),
             inverse_22 * (ex_x * right.y - ex_y * right.x)};
    turn_a = Cross(arm_a, given);
    turn_b = Cross(arm_b, given);
  }
  Put(of.impulse[0], first, Get(of.impulse[0], first) + given.x);
  Put(of.impulse[1], first, Get(of.impulse[1], first) + given.y);
  const Floats mass_a = Get(of.inv_mass_a, first);
  const Floats mass_b = Get(of.inv_mass_b, first);
  a = {a.x - mass_a * given.x, a.y - mass_a * given.y, a.w - inertia_a * turn_a};
  b = {b.x + mass_b * given.x, b.y + mass_b * given.y, b.w + inertia_b * turn_b};
}

struct Masses {
  Floats mass_a, mass_b, inertia_a, inertia_b;
};

// Pushes both bodies apart at a contact's point, in the lanes that have this point.
ROLLOUTS_INLINE void Push(Flags has, Point impulse, const ContactPointLanes& point,
                          std::int32_t first, const Masses& masses, Motion& a, Motion& b) {
  const Floats turn_a = Cross(Get(point.arm_a, first), impulse);
  const Floats turn_b = Cross(Get(point.arm_b, first), impulse);
  const Motion next_a{a.x - masses.mass_a * impulse.x, a.y - masses.mass_a * impulse.y,
                      a.w - masses.inertia_a * turn_a};
  const Motion next_b{b.x + masses.mass_b * impulse.x, b.y + masses.mass_b * impulse.y,
                      b.w + masses.inertia_b * turn_b};
  a = Select(has, next_a, a);
  b = Select(has, next_b, b);
}

ROLLOUTS_INLINE void SolveFriction(const ContactLanes& of, ContactPointLanes& point, Flags has,
                                   std::int32_t first, const Masses& masses, Point tangent,
                                   Motion& a, Motion& b) {
  const Point apart = Apart(a, b, Get(point.arm_a, first), Get(point.arm_b, first));
  const Floats along = Dot(apart, tangent) - Get(of.tangent_speed, first);
  const Floats change = Get(point.tangent_mass, first) * -along;
  const Floats most = Get(of.friction, first) * Get(point.normal_impulse, first);
  const Floats had = Get(point.tangent_impulse, first);
  const Floats now = Clamp(had + change, -most, most);
  Put(point.tangent_impulse, first, has ? now : had);
  Push(has, Times(now - had, tangent), point, first, masses, a, b);
}

ROLLOUTS_INLINE void SolveOnePoint(ContactPointLanes& point, Flags has, std::int32_t first,
                                   const Masses& masses, Point normal, Motion& a, Motion& b) {
  const Point apart = Apart(a, b, Get(point.arm_a, first), Get(point.arm_b, first));
  const Floats along = Dot(apart, normal);
  const Floats change = -Get(point.normal_mass, first) * (along - Get(point.velocity_bias, first));
  const Floats had = Get(point.normal_impulse, first);
  const Floats zero = {};
  const Floats now = Most(had + change, zero);
  Put(point.normal_impulse, first, has ? now : had);
  Push(has, Times(now - had, normal), point, first, masses, a, b);
}

// The block solver for two points: applies the first of its four cases that holds, or none. Returns
// the lanes whose impulses fail its assertions.
ROLLOUTS_INLINE Flags SolveTwoPoints(ContactLanes& of, Flags has, std::int32_t first,
                                     const Masses& masses, Point normal, Motion& a, Motion& b) {
  ContactPointLanes& one = of.points[0];
  ContactPointLanes& two = of.points[1];
  const Floats zero = {};
  const Point had{Get(one.normal_impulse, first), Get(two.normal_impulse, first)};
  const Flags failed = has & ~((had.x >= zero) & (had.y >= zero));
  const Point arm_a1 = Get(one.arm_a, first), arm_b1 = Get(one.arm_b, first);
  const Point arm_a2 = Get(two.arm_a, first), arm_b2 = Get(two.arm_b, first);
  const Floats k_ex_x = Get(of.k_ex[0], first), k_ex_y = Get(of.k_ex[1], first);
  const Floats k_ey_x = Get(of.k_ey[0], first), k_ey_y = Get(of.k_ey[1], first);
  const Floats along1 = Dot(Apart(a, b, arm_a1, arm_b1), normal);
  const Floats along2 = Dot(Apart(a, b, arm_a2, arm_b2), normal);
  Point right{along1 - Get(one.velocity_bias, first), along2 - Get(two.velocity_bias, first)};
  right = {right.x - (k_ex_x * had.x + k_ey_x * had.y), right.y - (k_ex_y * had.x + k_ey_y * had.y)};

  const Point both{-(Get(of.mass_ex[0], first) * right.x + Get(of.mass_ey[0], first) * right.y),
                   -(Get(of.mass_ex[1], first) * right.x + Get(of.mass_ey[1], first) * right.y)};
  const Flags is_both = (both.x >= zero) & (both.y >= zero);
  const Floats only1 = -Get(one.normal_mass, first) * right.x;
  const Flags is_only1 = (only1 >= zero) & (k_ex_y * only1 + right.y >= zero);
  const Floats only2 = -Get(two.normal_mass, first) * right.y;
  const Flags is_only2 = (only2 >= zero) & (k_ey_x * only2 + right.x >= zero);
  const Flags is_none = (right.x >= zero) & (right.y >= zero);
  const Flags found = has & (is_both | is_only1 | is_only2 | is_none);
  const Point now{is_both ? both.x : (is_only1 ? only1 : zero),
                  is_both ? both.y : (is_only1 ? zero : (is_only2 ? only2 : zero))};

  const Point given1 = Times(now.x - had.x, normal);
  const Point given2 = Times(now.y - had.y, normal);
  const Point given{given1.x + given2.x, given1.y + given2.y};
  const Motion next_a{
      a.x - masses.mass_a * given.x, a.y - masses.mass_a * given.y,
      a.w - masses.inertia_a * (Cross(arm_a1, given1) + Cross(arm_a2, given2))};
  const Motion next_b{
      b.x + masses.mass_b * given.x, b.y + masses.mass_b * given.y,
      b.w + masses.inertia_b * (Cross(arm_b1, given1) + Cross(arm_b2, given2))};
  a = Select(found, next_a, a);
  b = Select(found, next_b, b);
  Put(one.normal_impulse, first, found ? now.x : had.x);
  Put(two.normal_impulse, first, found ? now.y : had.y);
  return failed;
}

ROLLOUTS_INLINE Flags SolveContact(ContactLanes& of, std::int32_t first, std::int32_t num_bodies,
                                   Motion* bodies) {
  Motion a = {}, b = {};
  for (std::int32_t body = 0; body < num_bodies; ++body) {
    if (of.any_a[body]) a = Select(Get(of.is_a[body], first), bodies[body], a);
    if (of.any_b[body]) b = Select(Get(of.is_b[body], first), bodies[body], b);
  }
  const Masses masses{Get(of.inv_mass_a, first), Get(of.inv_mass_b, first),
                      Get(of.inv_inertia_a, first), Get(of.inv_inertia_b, first)};
  const Point normal = Get(of.normal, first);
  const Point tangent{normal.y, -normal.x};
  const Flags one = Get(of.one, first);
  const Flags two = Get(of.two, first);
  Flags failed = {};
  SolveFriction(of, of.points[0], one | two, first, masses, tangent, a, b);
  if (of.any_two) SolveFriction(of, of.points[1], two, first, masses, tangent, a, b);
  if (of.any_one) SolveOnePoint(of.points[0], one, first, masses, normal, a, b);
  if (of.any_two) failed = SolveTwoPoints(of, two, first, masses, normal, a, b);
  for (std::int32_t body = 0; body < num_bodies; ++body) {
    if (of.any_a[body]) bodies[body] = Select(Get(of.is_a[body], first), a, bodies[body]);
    if (of.any_b[body]) bodies[body] = Select(Get(of.is_b[body], first), b, bodies[body]);
  }
  return failed;
}

void SolveLanes(IslandBlock& block, std::int32_t first) {
  Motion bodies[kMaxIslandBodies];
  for (std::int32_t i = 0; i < block.num_bodies; ++i) {
    const BodyLanes& of = block.bodies[i];
    bodies[i] = {Get(of.x, first), Get(of.y, first), Get(of.w, first)};
  }
  Flags failed = {};
  for (std::int32_t iteration = 0; iteration < block.iterations; ++iteration) {
    for (std::int32_t i = 0; i < block.num_hinges; ++i) {
      HingeLanes& hinge = block.hinges[i];
      SolveHinge(hinge, first, bodies[hinge.a], bodies[hinge.b]);
    }
    for (std::int32_t i = 0; i < block.num_contacts; ++i) {
      failed |= SolveContact(block.contacts[i], first, block.num_bodies, bodies);
    }
  }
  for (std::int32_t i = 0; i < block.num_bodies; ++i) {
    BodyLanes& of = block.bodies[i];
    Put(of.x, first, bodies[i].x);
    Put(of.y, first, bodies[i].y);
    Put(of.w, first, bodies[i].w);
  }
  *reinterpret_cast<Flags*>(block.failed.at + first) = failed;
}

void SolveAll(IslandBlock& block) {
  for (std::int32_t first = 0; first < block.lanes; first += ROLLOUTS_ISLAND_LANES) {
    SolveLanes(block, first);
  }
}

#undef ROLLOUTS_INLINE

}  // namespace
}  // namespace rollouts
