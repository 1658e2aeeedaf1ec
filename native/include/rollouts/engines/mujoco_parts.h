// SPDX-License-Identifier: Apache-2.0
// Parts of a simulation by name, for any model: MuJoCo's arrays ("qpos"), the share of one object
// in them ("xpos:torso"), sensors ("gyro"), and elements of those ("qpos[2:]").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rollouts/engines/mujoco_physics.h"

namespace rollouts {

// Consecutive numbers of an array of mjData.
struct ModelPart {
  std::string name;        // as the user gave it
  std::int32_t field = 0;  // row of the table in engines/mujoco_parts.cpp
  std::int64_t offset = 0;
  std::int64_t count = 0;
  std::vector<std::int64_t> shape;  // that of the array, or of its row for one object
};

// The parts that an option names, separated by commas. Throws SpecError, which lists what the model
// has, for an unknown name.
std::vector<ModelPart> FindParts(const PhysicsModel& model, const char* option,
                                 const std::string& names);

// Tells if one of the parts is computed only by mj_rnePostConstraint.
bool NeedContactForces(const std::vector<ModelPart>& parts);

// The name in mjData of a part's array.
const char* PartArray(const ModelPart& part);

// The address of a part's numbers, valid as long as the simulation exists.
const double* PartData(const Physics& physics, const ModelPart& part);

inline constexpr std::int32_t kNoKeyframe = -1;

// The index of a keyframe by name or number; kNoKeyframe for "". Throws SpecError.
std::int32_t FindKeyframe(const PhysicsModel& model, const std::string& keyframe);

}  // namespace rollouts
