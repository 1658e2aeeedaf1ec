// SPDX-License-Identifier: Apache-2.0
// Random starts that several domains draw (dm_control's suite/utils/randomizers.py).
#pragma once

#include <functional>

#include "rollouts/core/rng.h"
#include "rollouts/engines/mujoco_physics.h"

namespace rollouts::dmc {

// Hinges and slides with limits: uniform within them. Hinges without: uniform in [-pi, pi). Balls:
// uniform rotations, with limits by less than that angle. Free joints: a rotation whose quaternion
// is uniform in the cube [0, 1)^4 before it is normalised, as dm_control's; no translation.
void RandomizeJoints(Physics& physics, Rng& rng);

// Calls `draw`, which draws positions, then Physics::ForwardUnactuated, again and again until
// nothing touches. Throws EngineError after many tries, and what that throws.
void DrawApart(Physics& physics, const std::function<void()>& draw);

// RandomizeJoints until nothing touches.
void RandomizeJointsApart(Physics& physics, Rng& rng);

// A quaternion (4) uniform on the sphere.
void DrawRotation(Rng& rng, double* quaternion);

}  // namespace rollouts::dmc
