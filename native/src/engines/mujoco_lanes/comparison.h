// SPDX-License-Identifier: Apache-2.0
// Compares steps of lanes with those of the loaded MuJoCo, from the same states.
#pragma once

#include <cstdint>
#include <string>

#include "engines/mujoco_abi.h"
#include "rollouts/lanes/step.h"

namespace rollouts {

// Relative to an array's largest number. Rounding causes differences of 1e-12, a release with other
// rules 1e-6.
inline constexpr double kMostDifference = 1e-9;

struct LanesComparison {
  std::int32_t num_compared = 0;  // steps; lanes have left all others to MuJoCo
  double difference = 0;          // the largest; NaN where a number is NaN
  const char* array = "qpos";     // the array that has it
  bool qacc_differs = false;      // no later step reads it; releases differ in it
};

// Reads a model for lanes, before any of their steps is compared.
lanes::ModelOrReason ReadByLanes(const mjModel* model);

// Compares 64 steps: from random positions, velocities and controls, and from the states that
// MuJoCo reaches from there. Throws EngineError.
LanesComparison CompareLanes(const lanes::Model& in_lanes, const mjModel* model);

// A number as text, such as "2.1e-07".
std::string TextOf(double number);

}  // namespace rollouts
