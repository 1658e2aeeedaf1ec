// SPDX-License-Identifier: Apache-2.0
// Rules for an environment that a user registers: pools, kernels and Gymnasium must all read its
// spaces alike. With a wrong spec they would misread each other's memory.
#pragma once

#include "rollouts/core/spec.h"
#include "rollouts/plugin/abi.h"

namespace rollouts {

// Throws SpecError, in one sentence, for the first mistake in the spec of an environment whose
// elements have these types.
void CheckSpec(const EnvSpec& spec, const PluginTable& table);

}  // namespace rollouts
