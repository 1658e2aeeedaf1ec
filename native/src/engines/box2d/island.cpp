// SPDX-License-Identifier: Apache-2.0
#include "island.h"

#include <algorithm>

namespace rollouts {
namespace {

// Gives access to the solver's members of a joint.
struct Hinge : b2RevoluteJoint {
  static constexpr auto kMotorImpulse = &Hinge::m_motorImpulse;
  static constexpr auto kImpulse = &Hinge::m_impulse;
  static constexpr auto kEnableMotor = &Hinge::m_enableMotor;
  static constexpr auto kEnableLimit = &Hinge::m_enableLimit;
  static constexpr auto kMaxMotorTorque = &Hinge::m_maxMotorTorque;
  static constexpr auto kMotorSpeed = &Hinge::m_motorSpeed;
  static constexpr auto kIndexA = &Hinge::m_indexA;
  static constexpr auto kIndexB = &Hinge::m_indexB;
  static constexpr auto kArmA = &Hinge::m_rA;
  static constexpr auto kArmB = &Hinge::m_rB;
  static constexpr auto kInvMassA = &Hinge::m_invMassA;
  static constexpr auto kInvMassB = &Hinge::m_invMassB;
  static constexpr auto kInvInertiaA = &Hinge::m_invIA;
  static constexpr auto kInvInertiaB = &Hinge::m_invIB;
  static constexpr auto kMass = &Hinge::m_mass;
  static constexpr auto kMotorMass = &Hinge::m_motorMass;
  static constexpr auto kLimitState = &Hinge::m_limitState;
};

b2RevoluteJoint& HingeOf(const b2Island& island, std::int32_t i) {
  return *static_cast<b2RevoluteJoint*>(island.m_joints[i]);
}

void Store(LanePoints& to, std::int32_t lane, const b2Vec2& vec) {
  to.x.at[lane] = vec.x;
  to.y.at[lane] = vec.y;
}
template <std::size_t size>
void Store(LaneFloats (&to)[size], std::int32_t lane, const b2Vec3& vec) {
  static_assert(size == 3);
  to[0].at[lane] = vec.x;
  to[1].at[lane] = vec.y;
  to[2].at[lane] = vec.z;
}
template <std::size_t size>
void Store(LaneFloats (&to)[size], std::int32_t lane, const b2Vec2& vec) {
  static_assert(size == 2);
  to[0].at[lane] = vec.x;
  to[1].at[lane] = vec.y;
}
float InverseOrZero(float det) { return det != 0 ? 1 / det : det; }
std::int32_t Flag(bool is) { return is ? -1 : 0; }

void PutHinge(HingeLanes& to, std::int32_t lane, const b2RevoluteJoint& joint, float seconds) {
  const b2Mat33& mass = joint.*Hinge::kMass;
  const b2LimitState state = joint.*Hinge::kLimitState;
  const float inertia = joint.*Hinge::kInvInertiaA + joint.*Hinge::kInvInertiaB;
  const bool turns = inertia != 0;
  const bool limited = joint.*Hinge::kEnableLimit && state != e_inactiveLimit && turns;
  to.motor_on.at[lane] = Flag(joint.*Hinge::kEnableMotor && state != e_equalLimits && turns);
  to.limited.at[lane] = Flag(limited);
  to.at_lower.at[lane] = Flag(state == e_atLowerLimit);
  to.at_upper.at[lane] = Flag(state == e_atUpperLimit);
  to.any_limited = to.any_limited || limited;
  Store(to.arm_a, lane, joint.*Hinge::kArmA);
  Store(to.arm_b, lane, joint.*Hinge::kArmB);
  to.inv_mass_a.at[lane] = joint.*Hinge::kInvMassA;
  to.inv_mass_b.at[lane] = joint.*Hinge::kInvMassB;
  to.inv_inertia_a.at[lane] = joint.*Hinge::kInvInertiaA;
  to.inv_inertia_b.at[lane] = joint.*Hinge::kInvInertiaB;
  to.motor_mass.at[lane] = joint.*Hinge::kMotorMass;
  to.motor_speed.at[lane] = joint.*Hinge::kMotorSpeed;
  to.max_motor_impulse.at[lane] = seconds * joint.*Hinge::kMaxMotorTorque;
  Store(to.ex, lane, mass.ex);
  Store(to.ey, lane, mass.ey);
  Store(to.ez, lane, mass.ez);
  const b2Vec3 cross = b2Cross(mass.ey, mass.ez);
  Store(to.ey_cross_ez, lane, cross);
  to.inverse_det_33.at[lane] = InverseOrZero(b2Dot(mass.ex, cross));
  to.inverse_det_22.at[lane] = InverseOrZero(mass.ex.x * mass.ey.y - mass.ey.x * mass.ex.y);
  to.motor_impulse.at[lane] = joint.*Hinge::kMotorImpulse;
  Store(to.impulse, lane, joint.*Hinge::kImpulse);
}

void PutContact(ContactLanes& to, std::int32_t lane, const b2ContactVelocityConstraint& contact,
                std::int8_t a, std::int8_t b) {
  const bool two = contact.pointCount == 2;
  to.one.at[lane] = Flag(!two);
  to.two.at[lane] = Flag(two);
  to.any_one = to.any_one || !two;
  to.any_two = to.any_two || two;
  if (a != Island::kStill) {
    to.is_a[a].at[lane] = Flag(true);
    to.any_a[a] = true;
  }
  if (b != Island::kStill) {
    to.is_b[b].at[lane] = Flag(true);
    to.any_b[b] = true;
  }
  to.inv_mass_a.at[lane] = contact.invMassA;
  to.inv_mass_b.at[lane] = contact.invMassB;
  to.inv_inertia_a.at[lane] = contact.invIA;
  to.inv_inertia_b.at[lane] = contact.invIB;
  Store(to.normal, lane, contact.normal);
  to.friction.at[lane] = contact.friction;
  to.tangent_speed.at[lane] = contact.tangentSpeed;
  if (two) {
    Store(to.k_ex, lane, contact.K.ex);
    Store(to.k_ey, lane, contact.K.ey);
    Store(to.mass_ex, lane, contact.normalMass.ex);
    Store(to.mass_ey, lane, contact.normalMass.ey);
  }
  for (std::int32_t i = 0; i < contact.pointCount; ++i) {
    const b2VelocityConstraintPoint& point = contact.points[i];
    ContactPointLanes& lanes = to.points[i];
    Store(lanes.arm_a, lane, point.rA);
    Store(lanes.arm_b, lane, point.rB);
    lanes.normal_mass.at[lane] = point.normalMass;
    lanes.tangent_mass.at[lane] = point.tangentMass;
    lanes.velocity_bias.at[lane] = point.velocityBias;
    lanes.normal_impulse.at[lane] = point.normalImpulse;
    lanes.tangent_impulse.at[lane] = point.tangentImpulse;
  }
}

}  // namespace

bool Island::IsLike(const Island& other) const {
  return of->m_jointCount == other.of->m_jointCount &&
         data->step.velocityIterations == other.data->step.velocityIterations &&
         std::equal(hinge_places.begin(), hinge_places.begin() + 2 * of->m_jointCount,
                    other.hinge_places.begin());
}

bool Island::Place(std::int32_t index, bool may_be_still) {
  if (place[index] != kNone) return true;
  if (may_be_still && of->m_bodies[index]->GetType() == b2_staticBody) {
    place[index] = kStill;
    return true;
  }
  if (num_bodies == kMaxIslandBodies) return false;
  place[index] = static_cast<std::int8_t>(num_bodies++);
  return true;
}

bool Island::FindPlaces() {
  if (of->m_bodyCount > std::ssize(place) || of->m_jointCount > kMaxIslandHinges ||
      contacts->m_count > kMaxIslandContacts) {
    return false;
  }
  place.fill(kNone);
  for (std::int32_t i = 0; i < of->m_jointCount; ++i) {
    if (of->m_joints[i]->GetType() != e_revoluteJoint) return false;
    const b2RevoluteJoint& joint = HingeOf(*of, i);
    for (const std::int32_t index : {joint.*Hinge::kIndexA, joint.*Hinge::kIndexB}) {
      if (!Place(index, /*may_be_still=*/false)) return false;
    }
    hinge_places[2 * i] = place[joint.*Hinge::kIndexA];
    hinge_places[2 * i + 1] = place[joint.*Hinge::kIndexB];
  }
  for (std::int32_t i = 0; i < contacts->m_count; ++i) {
    const b2ContactVelocityConstraint& contact = contacts->m_velocityConstraints[i];
    for (const std::int32_t index : {contact.indexA, contact.indexB}) {
      if (!Place(index, /*may_be_still=*/true)) return false;
    }
  }
  return true;
}

void Island::Put(IslandBlock& block, std::int32_t lane) const {
  for (std::int32_t i = 0; i < of->m_bodyCount; ++i) {
    if (place[i] < 0) continue;
    const b2Velocity& velocity = data->velocities[i];
    BodyLanes& body = block.bodies[place[i]];
    body.x.at[lane] = velocity.v.x;
    body.y.at[lane] = velocity.v.y;
    body.w.at[lane] = velocity.w;
  }
  for (std::int32_t i = 0; i < of->m_jointCount; ++i) {
    PutHinge(block.hinges[i], lane, HingeOf(*of, i), data->step.dt);
  }
  for (std::int32_t i = 0; i < contacts->m_count; ++i) {
    const b2ContactVelocityConstraint& contact = contacts->m_velocityConstraints[i];
    PutContact(block.contacts[i], lane, contact, place[contact.indexA],
               place[contact.indexB]);
  }
}

void Island::Take(const IslandBlock& block, std::int32_t lane) const {
  for (std::int32_t i = 0; i < of->m_bodyCount; ++i) {
    if (place[i] < 0) continue;
    const BodyLanes& body = block.bodies[place[i]];
    data->velocities[i].v.Set(body.x.at[lane], body.y.at[lane]);
    data->velocities[i].w = body.w.at[lane];
  }
  for (std::int32_t i = 0; i < of->m_jointCount; ++i) {
    const HingeLanes& hinge = block.hinges[i];
    b2RevoluteJoint& joint = HingeOf(*of, i);
    joint.*Hinge::kMotorImpulse = hinge.motor_impulse.at[lane];
    (joint.*Hinge::kImpulse)
        .Set(hinge.impulse[0].at[lane], hinge.impulse[1].at[lane], hinge.impulse[2].at[lane]);
  }
  for (std::int32_t i = 0; i < contacts->m_count; ++i) {
    b2ContactVelocityConstraint& contact = contacts->m_velocityConstraints[i];
    for (std::int32_t p = 0; p < contact.pointCount; ++p) {
      contact.points[p].normalImpulse = block.contacts[i].points[p].normal_impulse.at[lane];
      contact.points[p].tangentImpulse = block.contacts[i].points[p].tangent_impulse.at[lane];
    }
  }
}

}  // namespace rollouts
