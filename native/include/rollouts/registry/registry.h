// SPDX-License-Identifier: Apache-2.0
// Environments by id. The table itself is generated from native/envs.cmake.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rollouts/pool/env_batch.h"
#include "rollouts/support/options.h"

namespace rollouts {

// One line of envs.cmake, with its environment type behind functions. An id that
// ends in `*` is a family: Python supplies the rest of the id through options.
struct RegistryEntry {
  std::string id;
  std::int32_t max_episode_steps = 0;  // 0: none
  double reward_threshold = 0;         // NaN: none
  bool cpu_only = false;
  std::string header;  // relative to include/rollouts, for NVRTC and readers
  std::string type;
  Options (*default_options)();
  EnvSpec (*make_spec)(const OptionColumns&);  // of the first row
  // Environments whose options are rows first_row, first_row + 1, ...
  std::unique_ptr<EnvBatch> (*make_batch)(const OptionColumns&, std::int32_t first_row,
                                          std::int32_t num_envs);
  bool multi_agent = false;
};

// Consecutive environments of one entry in a pool.
struct Segment {
  const RegistryEntry* entry = nullptr;
  std::int32_t num_envs = 0;
  std::int32_t max_episode_steps = 0;  // 0: no limit
  OptionColumns internal;              // options that users do not give, such as a ROM's path
};

// Every entry: light ones, heavy ones, those with several agents, each in the order of envs.cmake.
const std::vector<RegistryEntry>& Registry();

// Throws SpecError when there is no such id.
const RegistryEntry& FindEntry(const std::string& id);

// All environments of a pool, in the order of the segments. Columns of `options` have one
// value or one for each environment of the pool. Throws SpecError where the spaces differ.
std::unique_ptr<EnvBatch> MakeEnvBatch(std::span<const Segment> segments,
                                       const OptionColumns& options);

}  // namespace rollouts
