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
  // "auto" steps several simulations side by side in vector lanes where the model allows it, equal to
  // MuJoCo but for rounding, "lanes" nothing else, "mujoco" has MuJoCo's own step
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

// Changes a spec with MuJoCo's costs to that of an environment that lanes step, if they do.
void ChangeSpecForLanes(const EngineConfig& config, const PhysicsModel& model, DataArrays reads,
                        EnvSpec& spec);

}  // namespace rollouts
