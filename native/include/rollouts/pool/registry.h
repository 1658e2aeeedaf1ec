// SPDX-License-Identifier: Apache-2.0
// Environments by id. The table itself is generated from native/envs.cmake.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rollouts/pool/env_batch.h"
#include "rollouts/pool/options.h"

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
  Options (*all_options)(const Options& given);  // with defaults for the rest
  EnvSpec (*make_spec)(const Options&);
  std::unique_ptr<EnvBatch> (*make_batch)(const Options&, std::int32_t num_envs);
};

// Every entry, in the order of envs.cmake.
const std::vector<RegistryEntry>& Registry();

// Throws SpecError when there is no such id.
const RegistryEntry& FindEntry(const std::string& id);

}  // namespace rollouts
