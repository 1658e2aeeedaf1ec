// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "entries.h"
#include "registry_light_includes.inc"
#include "rollouts/pool/light_env_batch.h"
#include "rollouts/pool/spec_difference.h"

namespace rollouts {

// defined in block_kernels.cpp
#define ROLLOUTS_TYPE(TYPE) BlockKernels<TYPE> BestKernels(const TYPE::Config&);
#include "registry_vectorized_types.inc"
#undef ROLLOUTS_TYPE

namespace {

template <LightEnvironment Env>
std::unique_ptr<EnvBatch> LightBatch(const OptionColumns& options, std::int32_t first_row,
                                     std::int32_t num_envs,
                                     const typename Env::Config& defaults) {
  auto configs = ReadConfigs<Env>(options, first_row, num_envs, defaults);
  // the loader has chosen the instruction set of these
  if constexpr (Vectorized<Env>) {
    const auto kernels = BestKernels(configs[0]);
    return std::make_unique<LightEnvBatch<Env>>(std::move(configs), num_envs, kernels);
  } else {
    return std::make_unique<LightEnvBatch<Env>>(std::move(configs), num_envs);
  }
}

// Throws SpecError where options need the host, or change the spec: a kernel is compiled with the
// environment's own spec.
template <LightEnvironment Env>
std::vector<std::uint8_t> ConfigBytes(const OptionColumns& options, std::int32_t num_envs,
                                      const typename Env::Config& defaults) {
  const auto configs = ReadConfigs<Env>(options, 0, num_envs, defaults);
  for (const auto& config : configs) {
    if constexpr (requires { Env::HostOnly(config); }) {
      if (const char* const what = Env::HostOnly(config)) {
        throw SpecError(std::string(what) +
                        " is not for a GPU's pool: leave it out, or make a pool without device=");
      }
    }
  }
  CheckDeviceSpecs<Env>(configs);
  return BytesOf(configs);
}

// The layout of a light environment on a device; its State has either named Reals or whole numbers.
template <LightEnvironment Env>
DeviceLayout LightLayout(const typename Env::Config& defaults) {
  using State = typename Env::State;
  using Field = std::conditional_t<Watched<Env>, Real, std::int32_t>;
  static_assert(sizeof(State) % sizeof(Field) == 0 && alignof(State) == alignof(Field));
  return {.state_fields = sizeof(State) / sizeof(Field),
          .real_state = Watched<Env>,
          .config_bytes = sizeof(typename Env::Config),
          .configs =
              [defaults](const OptionColumns& options, std::int32_t num_envs) {
                return ConfigBytes<Env>(options, num_envs, defaults);
              },
          .worlds = {}};
}

// `defaults`: of the options of this id.
template <LightEnvironment Env>
RegistryEntry LightEntry(const char* id, std::int32_t max_episode_steps, double reward_threshold,
                         const char* header, const char* type,
                         const typename Env::Config& defaults) {
  RegistryEntry entry;
  entry.id = id;
  entry.max_episode_steps = max_episode_steps;
  entry.reward_threshold = reward_threshold;
  entry.header = header;
  entry.type = type;
  entry.default_options = [defaults] { return ListOptions<Env>(defaults); };
  entry.make_spec = [defaults](const OptionColumns& options) {
    return SpecUnder<Env>(ReadConfig<Env>(options, 0, defaults));
  };
  entry.make_batch = [defaults](const OptionColumns& options, std::int32_t first_row,
                                std::int32_t num_envs) {
    return LightBatch<Env>(options, first_row, num_envs, defaults);
  };
  entry.device = LightLayout<Env>(defaults);
  return entry;
}

}  // namespace

std::vector<RegistryEntry> LightEntries() {
  std::vector<RegistryEntry> entries;
#define ROLLOUTS_LIGHT_ENV(ID, TYPE, HEADER, MAX_STEPS, THRESHOLD, ...) \
  entries.push_back(                                                    \
      LightEntry<TYPE>(ID, MAX_STEPS, THRESHOLD, HEADER, #TYPE, TYPE::Config{__VA_ARGS__}));
#include "registry_light_entries.inc"
  return entries;
#undef ROLLOUTS_LIGHT_ENV
}

}  // namespace rollouts
