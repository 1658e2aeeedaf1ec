// SPDX-License-Identifier: Apache-2.0
#include "rollouts/envs/mujoco/step_engine.h"

#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

std::string Reason(const EngineConfig& config, const PhysicsModel& model, DataArrays reads) {
  if (config.engine == "mujoco") return "engine='mujoco' asks for MuJoCo's own step";
  if (config.from_pixels) return "from_pixels=True draws what MuJoCo's own step leaves";
  if ((reads & kBeyondLanes) != 0) {
    return "options 'observation' and 'info' name arrays that lanes do not write";
  }
  if (model.why_not_lanes().empty() && (reads & model.unequal_in_lanes()) != 0) {
    return "options 'observation' and 'info' name qacc, which this release of MuJoCo leaves otherwise";
  }
  return model.why_not_lanes();
}

}  // namespace

std::string WhyNotLanes(const EngineConfig& config, const PhysicsModel& model, DataArrays reads) {
  std::string reason = Reason(config, model, reads);
  if (config.engine == "lanes" && !reason.empty()) {
    throw SpecError("engine='lanes' cannot step the model " + model.xml_path() + ": " + reason +
                    ". Use engine='auto', which steps such models with MuJoCo, or 'mujoco'");
  }
  return reason;
}

void ChangeSpecForLanes(const EngineConfig& config, const PhysicsModel& model, DataArrays reads,
                        EnvSpec& spec) {
  if (!WhyNotLanes(config, model, reads).empty()) return;
  spec.step_cost_ns = CostInLanesNs(spec.step_cost_ns);
  spec.together = TogetherInLanes();
}

}  // namespace rollouts
