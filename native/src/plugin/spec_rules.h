// SPDX-License-Identifier: Apache-2.0
// Rules for a user's own environment: every space that pools, kernels and Gymnasium
// read alike. A wrong word there would have them read each other's memory as something else.
#pragma once

#include "rollouts/core/spec.h"
#include "rollouts/plugin/abi.h"

namespace rollouts {

// Throws SpecError in one sentence for the first thing that is wrong with the spec of an environment
// whose elements have these types.
void CheckSpec(const EnvSpec& spec, const PluginTable& table);

}  // namespace rollouts
