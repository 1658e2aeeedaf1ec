// SPDX-License-Identifier: Apache-2.0
// The engine of a simulation: MuJoCo, or lanes, which step several at once (rollouts/lanes/step.h).
#pragma once

#include <string>

#include "rollouts/core/spec.h"
#include "rollouts/engines/mujoco_physics.h"
#include "rollouts/engines/mujoco_pixels.h"

namespace rollouts {

// Options of every environment on MuJoCo.
struct EngineConfig : PixelConfig {
  // "lanes" steps several simulations at once with vector instructions, equal to MuJoCo except for
  // rounding; "mujoco" makes MuJoCo's own steps; "auto" is "lanes" where the model allows it
  std::string engine = "auto";

  template <typename Visitor>
  static void VisitEngine(EngineConfig& config, Visitor& visit) {
    visit("engine", config.engine);
    VisitPixels(config, visit);
  }
  template <typename Check>
  static void CheckEngine(const EngineConfig& config, Check& check) {
    check.OneOf("engine", config.engine, {"auto", "lanes", "mujoco"});
  }
};

// The reason why lanes do not step a simulation; empty where they do. Throws SpecError where the
// options require lanes and they cannot.
std::string WhyNotLanes(const EngineConfig& config, const PhysicsModel& model, DataArrays reads);

// Replaces the costs in an environment's spec, which are MuJoCo's, by those of lanes, if they step
// it.
void ChangeSpecForLanes(const EngineConfig& config, const PhysicsModel& model, DataArrays reads,
                        EnvSpec& spec);

}  // namespace rollouts
