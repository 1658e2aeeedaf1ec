// SPDX-License-Identifier: Apache-2.0
// The parts of the registry's table, compiled separately because environment types are most of what
// a build compiles.
#pragma once

#include <vector>

#include "rollouts/registry/registry.h"

namespace rollouts {

std::vector<RegistryEntry> LightEntries();
std::vector<RegistryEntry> HeavyEntries();
std::vector<RegistryEntry> AgentEntries();

}  // namespace rollouts
