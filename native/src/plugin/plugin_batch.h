// SPDX-License-Identifier: Apache-2.0
// The library's side of include/rollouts/plugin/abi.h: environments of a plug-in as a batch of a
// pool.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rollouts/plugin/abi.h"
#include "rollouts/pool/env_batch.h"

namespace rollouts {

// Loads a plug-in, which stays loaded until the process ends. Throws EngineError where it cannot be
// loaded or was made for another release.
const PluginTable& LoadPlugin(const std::string& path);

// Functions for an entry of the registry; all but the first throw SpecError for options that do
// not fit.
Options PluginOptions(const PluginTable& table);
std::vector<std::uint8_t> PluginConfigs(const PluginTable& table, const OptionColumns& options,
                                        std::int32_t num_envs);
WorldFacts PluginWorlds(const PluginTable& table, const OptionColumns& options,
                        std::int32_t num_envs);
EnvSpec PluginSpec(const PluginTable& table, const OptionColumns& options);
std::unique_ptr<EnvBatch> MakePluginBatch(const PluginTable& table, const OptionColumns& options,
                                          std::int32_t first_row, std::int32_t num_envs);

}  // namespace rollouts
