// SPDX-License-Identifier: Apache-2.0
// Random starts that several domains draw (dm_control's suite/utils/randomizers.py).
#pragma once

#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

ROLLOUTS_HD inline void Normalize(double* values, std::int32_t count) {
  const double norm = mujoco::Norm(values, count);
  for (std::int32_t i = 0; i < count; ++i) values[i] /= norm;
}

// Draws a quaternion (4) uniformly from the sphere.
ROLLOUTS_HD inline void DrawRotation(Rng& rng, double* quaternion) {
  for (std::int32_t i = 0; i < 4; ++i) quaternion[i] = mujoco::StandardNormal(rng);
  Normalize(quaternion, 4);
}

// Draws a rotation by less than `limit` radians around any axis.
ROLLOUTS_HD inline void DrawLimitedRotation(Rng& rng, double limit, double* quaternion) {
  // the direction of normally distributed numbers is uniform
  double axis[3];
  for (double& value : axis) value = mujoco::StandardNormal(rng);
  Normalize(axis, 3);
  const double half = rng.Uniform() * limit * 0.5;
  quaternion[0] = LibraryCos(half);
  for (std::int32_t i = 0; i < 3; ++i) quaternion[1 + i] = axis[i] * LibrarySin(half);
}

// Draws positions of joints. Hinges and slides with limits: uniform within them. Hinges without:
// uniform in [-pi, pi). Balls: uniform rotations, or with limits, rotations by less than the limit.
// Free joints: a rotation whose quaternion is uniform in the cube [0, 1)^4 before it is normalised,
// as in dm_control; no translation.
ROLLOUTS_HD void RandomizeJoints(auto& start, Rng& rng) {
  const auto& model = start.model;
  for (std::int32_t joint = 0; joint < model.njnt; ++joint) {
    double* const qpos = start.qpos + model.jnt_qposadr[joint];
    const double low = model.jnt_range[2 * joint];
    const double high = model.jnt_range[2 * joint + 1];
    const bool limited = start.JointLimited(joint);
    switch (model.jnt_type[joint]) {
      // as in dm_control's randomizers: slides without limits have no natural range, and keep their
      // position
      case kHingeJoint: *qpos = limited ? rng.Uniform(low, high) : rng.Uniform(-kPi, kPi); break;
      case kSlideJoint:
        if (limited) *qpos = rng.Uniform(low, high);
        break;
      case kBallJoint:
        if (limited) {
          DrawLimitedRotation(rng, high, qpos);
        } else {
          DrawRotation(rng, qpos);
        }
        break;
      case kFreeJoint:
        if (limited) break;
        // uniform and not normal, as in dm_control, so that rotations are not equally likely
        for (std::int32_t i = 3; i < 7; ++i) qpos[i] = rng.Uniform();
        Normalize(qpos + 3, 4);
        break;
    }
  }
}

}  // namespace rollouts::dmc
