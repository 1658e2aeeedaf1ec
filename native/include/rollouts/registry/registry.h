// SPDX-License-Identifier: Apache-2.0
// Environments by id: first those of a table that is generated from native/envs.cmake, then those
// that users register.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rollouts/envs/mujoco/task_facts.h"
#include "rollouts/pool/env_batch.h"
#include "rollouts/support/options.h"
#include "rollouts/support/world_arrays.h"
#include "rollouts/wrappers/wrappers.h"

namespace rollouts {

// Facts for a GPU's pool that depend on the types in an environment's header.
struct DeviceLayout {
  std::int32_t state_fields = 0;  // numbers that a State consists of; 0 with several agents
  bool real_state = false;        // the numbers are Reals, else int32s
  std::int32_t config_bytes = 0;
  // The Configs of `num_envs` environments, one after the other; a single one where all are equal.
  std::function<std::vector<std::uint8_t>(const OptionColumns&, std::int32_t num_envs)> configs;
  // Worlds of several agents, one for each of the Configs that `configs` returns.
  std::function<WorldFacts(const OptionColumns&, std::int32_t num_envs)> worlds;
  // A MuJoCo task that mujoco_warp can step; such an entry has no `configs`.
  std::function<TaskFacts(const OptionColumns&, std::int32_t num_envs, bool of_model)> task;
};

// One line of envs.cmake or an environment that a user registered; the functions hide its type. An
// id that ends in `*` is a family: Python supplies the rest of the id through options.
struct RegistryEntry {
  std::string id;
  std::int32_t max_episode_steps = 0;  // 0: none
  double reward_threshold = 0;         // NaN: none
  bool cpu_only = false;
  std::string header;  // relative to include/rollouts, for NVRTC and readers; own ones: "own/..."
  std::string type;    // environments of equal type can load each other's saved states
  std::function<Options()> default_options;
  std::function<EnvSpec(const OptionColumns&)> make_spec;  // from the first row
  // Makes environments whose options are rows first_row, first_row + 1, ...
  std::function<std::unique_ptr<EnvBatch>(const OptionColumns&, std::int32_t first_row,
                                          std::int32_t num_envs)>
      make_batch;
  bool multi_agent = false;
  DeviceLayout device;  // without `configs` where no GPU's pool can step it
};

// Facts of an environment that a user registers.
struct OwnEnv {
  std::string id;
  std::int32_t max_episode_steps = 0;
  double reward_threshold = 0;
  std::string header;
  std::string type;
  std::string library;  // path of the plug-in (rollouts/plugin/abi.h)
};

// Consecutive environments of one entry in a pool.
struct Segment {
  const RegistryEntry* entry = nullptr;
  std::int32_t num_envs = 0;
  std::int32_t max_episode_steps = 0;  // 0: no limit
  OptionColumns internal;              // options that users do not give, such as a ROM's path
};

// Every entry: light environments, heavy ones, those with several agents, each in the order of
// envs.cmake; then users' ones in the order in which they were registered. Entries keep their
// addresses until the process ends. Thread-safe, as are the next two functions.
std::vector<const RegistryEntry*> Registry();

// Names of the options and infos of a library's environment. Throws SpecError where its default
// options or its spaces are wrong, EngineError where the library cannot be loaded.
struct OwnNames {
  std::vector<std::string> options;
  std::vector<std::string> infos;
};
OwnNames NamesOf(const std::string& library);

// Adds an entry. Throws as NamesOf, and SpecError where its id exists.
void RegisterEnv(const OwnEnv& env);

// Throws SpecError when there is no such id.
const RegistryEntry& FindEntry(const std::string& id);

// All environments of a pool, in the order of the segments, with wrappers around them. Columns of
// `options` have one value or one for each environment of the pool. Throws SpecError where the
// spaces differ.
std::unique_ptr<EnvBatch> MakeEnvBatch(std::span<const Segment> segments,
                                       const OptionColumns& options, const Wrappers& wrappers);

}  // namespace rollouts
