// SPDX-License-Identifier: Apache-2.0
// Parts of a simulation by name, for models that nobody here knows: MuJoCo's arrays ("qpos"), the
// share of one object in them ("xpos:torso"), sensors ("gyro"), and elements of those ("qpos[2:]").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rollouts/engines/mujoco_physics.h"

namespace rollouts {

// Consecutive numbers of an array of mjData.
struct ModelPart {
  std::string name;        // as it was given
  std::int32_t field = 0;  // row of the table in engines/mujoco_parts.cpp
  std::int64_t offset = 0;
  std::int64_t count = 0;
  std::vector<std::int64_t> shape;  // that of the array or of the object's row in it
};

// The parts that an option names, with commas between them. Throws SpecError, which lists what the
// model has, for a name that means nothing.
std::vector<ModelPart> FindParts(const PhysicsModel& model, const char* option,
                                 const std::string& names);

// Whether a part is of those that MuJoCo computes by mj_rnePostConstraint alone.
bool NeedContactForces(const std::vector<ModelPart>& parts);

// The name in mjData of the array that a part is of.
const char* PartArray(const ModelPart& part);

// The place of a part's numbers, for as long as the simulation lives.
const double* PartData(const Physics& physics, const ModelPart& part);

inline constexpr std::int32_t kNoKeyframe = -1;

// The index of a keyframe by name or number; kNoKeyframe for "". Throws SpecError.
std::int32_t FindKeyframe(const PhysicsModel& model, const std::string& keyframe);

}  // namespace rollouts
