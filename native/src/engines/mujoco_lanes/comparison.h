// SPDX-License-Identifier: Apache-2.0
// Steps of lanes beside those of the MuJoCo that is loaded, from the same states.
#pragma once

#include <cstdint>
#include <string>

#include "engines/mujoco_abi.h"
#include "rollouts/lanes/step.h"

namespace rollouts {

// Relative to an array's largest number. Rounding makes 1e-12, another release's rules 1e-6.
inline constexpr double kMostDifference = 1e-9;

struct LanesComparison {
  std::int32_t num_compared = 0;  // steps; all others lanes have left to MuJoCo
  double difference = 0;          // the largest; NaN where one of them is not a number
  const char* array = "qpos";     // in which it is
  bool qacc_differs = false;      // no later step reads it; releases leave different ones
};

// A model as lanes read it, before any step of theirs is compared.
lanes::ModelOrReason ReadByLanes(const mjModel* model);

// Compares 64 steps: from random positions, velocities and controls, and from where MuJoCo comes to
// from there. Throws EngineError.
LanesComparison CompareLanes(const lanes::Model& in_lanes, const mjModel* model);

// Such as "2.1e-07".
std::string TextOf(double number);

}  // namespace rollouts
