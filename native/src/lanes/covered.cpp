// SPDX-License-Identifier: Apache-2.0
// MuJoCo's features that lanes can step, found by the fields of a model.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "fields.h"
#include "model.h"

namespace rollouts::lanes {
namespace {

// Tells if any of the values is not zero. Fields that a release lacks count as zero.
template <typename T>
bool Any(const FieldReader& read, const char* name, std::int64_t count) {
  const T* const values = Array<T>(read, name);
  return values && std::any_of(values, values + count, [](T one) { return one != T{}; });
}

template <typename T>
bool AnyAbove(const FieldReader& read, const char* name, std::int64_t count, T least) {
  const T* const values = Array<T>(read, name);
  return values && std::any_of(values, values + count, [least](T one) { return one > least; });
}

std::string WhyNotOptions(const FieldReader& read) {
  const std::int32_t integrator = *Array<std::int32_t>(read, "opt.integrator");
  if (integrator != kEuler && integrator != kRungeKutta4) return "its integrator is neither Euler nor RK4";
  const std::int32_t solver = *Array<std::int32_t>(read, "opt.solver");
  if (solver != kPgs && solver != kNewton) return "its solver is CG";
  // rounding alone would decide when the solver stops
  if (*Array<double>(read, "opt.tolerance") < 1e-13) return "its solver's tolerance is below 1e-13";
  if (*Array<std::int32_t>(read, "opt.cone") != 0) return "its friction cones are elliptic";
  if (*Array<std::int32_t>(read, "opt.noslip_iterations") > 0) return "it has noslip iterations";
  // energy is only reported, and nobody here reads it
  constexpr std::int32_t kEnergy = 1 << 1;
  if ((*Array<std::int32_t>(read, "opt.enableflags") & ~kEnergy) != 0) return "it enables optional features";
  const std::int32_t disabled = *Array<std::int32_t>(read, "opt.disableflags");
  constexpr std::int32_t kKnown = (kNoAutoReset << 4) - 1;
  if (disabled & ~kKnown) return "it disables a feature that lanes do not know";
  constexpr std::int32_t kIslands = 1 << 18;
  if (disabled & kIslands) return "it disables constraint islands";
  if (disabled & kNoAutoReset) return "it disables automatic resets";
  if (*Array<std::int32_t>(read, "opt.disableactuator") != 0) return "it disables groups of actuators";
  return "";
}

std::string WhyNotBodies(const ModelSizes& n, const FieldReader& read) {
  if (n.nv > kMaxDofs) return "it has more than 64 degrees of freedom";
  if (n.nflex > 0) return "it has flexible bodies";
  if (n.nplugin > 0) return "it has plugins";
  if (n.nmocap > 0) return "it has mocap bodies";
  if (Any<double>(read, "body_gravcomp", n.nbody)) return "it has gravity compensation";
  const double* const fluid = Array<double>(read, "geom_fluid");
  for (std::int32_t g = 0; fluid && g < n.ngeom; ++g) {
    if (fluid[12 * g] > 0) return "it has ellipsoids in a fluid";
  }
  return "";
}

std::string WhyNotJoints(const ModelSizes& n, const FieldReader& read) {
  const auto* const type = Array<std::int32_t>(read, "jnt_type");
  const auto* const limited = Array<std::uint8_t>(read, "jnt_limited");
  const auto* const stiffness = Array<double>(read, "jnt_stiffness");
  for (std::int32_t j = 0; j < n.njnt; ++j) {
    const bool turns = type[j] == kFree || type[j] == kBall;
    if (turns && limited[j]) return "it limits a ball joint";
    if (turns && stiffness[j] != 0) return "it has a spring on a free or ball joint";
    const double* const axis = Array<double>(read, "jnt_axis") + 3 * j;
    const double length = axis[0] * axis[0] + axis[1] * axis[1] + axis[2] * axis[2];
    if (!turns && !(std::fabs(length - 1) < 1e-12)) return "it has joints whose axes are no unit vectors";
  }
  if (Any<double>(read, "jnt_stiffnesspoly", 2L * n.njnt) || Any<double>(read, "dof_dampingpoly", 2L * n.nv)) {
    return "it has springs or dampers that are not linear";
  }
  if (AnyAbove<std::int32_t>(read, "jnt_plasticadr", n.njnt, -1)) return "it has plastic joints";
  if (Any<std::uint8_t>(read, "jnt_actgravcomp", n.njnt)) return "it has gravity compensation";
  return "";
}

std::string WhyNotTendons(const ModelSizes& n, const FieldReader& read) {
  if (Any<std::uint8_t>(read, "tendon_actfrclimited", n.ntendon)) return "it limits forces on tendons";
  for (const char* const name : {"tendon_stiffness", "tendon_damping", "tendon_armature",
                                 "tendon_frictionloss"}) {
    if (Any<double>(read, name, n.ntendon)) return "it has tendons with springs, dampers, armature or friction";
  }
  const auto* const kind = Array<std::int32_t>(read, "wrap_type");
  for (std::int32_t i = 0; i < n.nwrap; ++i) {
    if (kind[i] == kWrapPulley) return "it has tendons over pulleys";
    if (kind[i] != kWrapJoint && kind[i] != kWrapSite) return "it has tendons that wrap around geoms";
  }
  const auto* const limited = Array<std::uint8_t>(read, "tendon_limited");
  for (std::int32_t t = 0; t < n.ntendon; ++t) {
    const bool spatial = kind[Array<std::int32_t>(read, "tendon_adr")[t]] != kWrapJoint;
    if (limited[t] && !spatial) return "it has limited tendons that are sums of joints";
    if (limited[t] && Array<std::int32_t>(read, "tendon_num")[t] > 2) {
      return "it has limited tendons over more than two sites";
    }
  }
  return "";
}

std::string WhyNotActuators(const ModelSizes& n, const FieldReader& read) {
  if (n.na > 0) return "it has actuators with activations";
  if (n.nhistory > 0) return "it has delays";
  const auto* const kind = Array<std::int32_t>(read, "actuator_trntype");
  const auto* const target = Array<std::int32_t>(read, "actuator_trnid");
  const auto* const joints = Array<std::int32_t>(read, "jnt_type");
  const auto* const wraps = Array<std::int32_t>(read, "wrap_type");
  for (std::int32_t i = 0; i < n.nu; ++i) {
    const bool on_joint = kind[i] == 0 || kind[i] == 1;
    if (!on_joint && kind[i] != 3) return "it has actuators on neither joints nor tendons";
    if (!on_joint && wraps[Array<std::int32_t>(read, "tendon_adr")[target[2 * i]]] != kWrapJoint) {
      return "it has actuators on spatial tendons";
    }
    if (on_joint && joints[target[2 * i]] != kSlide && joints[target[2 * i]] != kHinge) {
      return "it has actuators on a free or ball joint";
    }
    if (Array<std::int32_t>(read, "actuator_dyntype")[i] != 0) return "it has actuators with activations";
    if (Array<std::int32_t>(read, "actuator_gaintype")[i] > 1 ||
        Array<std::int32_t>(read, "actuator_biastype")[i] > 1) {
      return "it has actuators that are neither motors nor servos";
    }
  }
  if (Any<double>(read, "actuator_damping", n.nu) || Any<double>(read, "actuator_armature", n.nu) ||
      Any<double>(read, "actuator_dampingpoly", 2L * n.nu)) {
    return "it has actuators with damping or armature";
  }
  return "";
}

std::string WhyNotConstraints(const ModelSizes& n, const FieldReader& read) {
  const std::int32_t disabled = *Array<std::int32_t>(read, "opt.disableflags");
  if (disabled & kNoConstraint) return "";
  if (n.neq > 0 && (disabled & kNoEquality) == 0) return "it has equality constraints";
  const bool pgs = *Array<std::int32_t>(read, "opt.solver") == kPgs;
  if (pgs && n.ntree > 1) return "its solver is PGS, and it has several trees of bodies";
  if ((disabled & kNoFrictionLoss) == 0 && pgs && Any<double>(read, "dof_frictionloss", n.nv)) {
    return "its solver is PGS, and it has dry friction";
  }
  if (disabled & kNoContact) return "";
  if (n.npair > 0) return "it lists pairs of geoms";
  if (Any<double>(read, "geom_gap", n.ngeom)) return "it has contact gaps";
  if (Any<double>(read, "geom_surfacevel", 6L * n.ngeom)) return "it has moving surfaces";
  if (Any<double>(read, "geom_adhesion", n.ngeom)) return "it has sticking surfaces";
  return "";
}

}  // namespace

std::string WhyUncovered(const ModelSizes& n, const FieldReader& read) {
  for (const auto& why : {WhyNotOptions(read), WhyNotBodies(n, read), WhyNotJoints(n, read),
                          WhyNotTendons(n, read), WhyNotActuators(n, read), WhyNotConstraints(n, read)}) {
    if (!why.empty()) return why;
  }
  // pairs of geoms that move relative to each other
  const std::int32_t disabled = *Array<std::int32_t>(read, "opt.disableflags");
  if (disabled & (kNoConstraint | kNoContact)) return "";
  const auto* const dims = Array<std::int32_t>(read, "geom_condim");
  const auto* const touches = Array<std::int32_t>(read, "geom_contype");
  const auto* const touched = Array<std::int32_t>(read, "geom_conaffinity");
  for (std::int32_t g = 0; g < n.ngeom; ++g) {
    if (!touches[g] && !touched[g]) continue;
    if (dims[g] != 1 && dims[g] != 3) return "it has contacts of 4 or 6 dimensions";
  }
  return "";
}

std::string WhyUncoveredPairs(const Model& model) {
  for (std::int32_t i = 0; i < model.num_pairs; ++i) {
    const Pair& pair = model.pairs[i];
    // refused here, because a moving geom often meets a fixed one
    if (pair.kind == PairKind::kUncovered && (pair.tree[0] < 0 || pair.tree[1] < 0)) {
      return "it has geoms of kinds that lanes do not cover on fixed ones";
    }
    // opposite edges of such a flat pyramid cancel, and rounding alone would decide when to stop
    if (pair.dim > 1 && model.pair_numbers[i].friction < 1e-3) return "it has contacts with hardly any friction";
  }
  return "";
}

}  // namespace rollouts::lanes
