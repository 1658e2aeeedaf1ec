// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "entries.h"
#include "registry_light_includes.inc"
#include "rollouts/pool/light_env_batch.h"

namespace rollouts {

// defined in block_kernels.cpp
#define ROLLOUTS_TYPE(TYPE) BlockKernels<TYPE> BestKernels(const TYPE::Config&);
#include "registry_vectorized_types.inc"
#undef ROLLOUTS_TYPE

namespace {

// Names and defaults of its options.
template <LightEnvironment Env>
Options LightOptions() {
  return ListOptions<Env>({});
}

// No option changes the spaces of a light environment.
template <LightEnvironment Env>
EnvSpec LightSpec(const OptionColumns& options) {
  ReadConfig<Env>(options, 0);  // unknown options are errors here too
  return Env::kSpec;
}

template <LightEnvironment Env>
std::unique_ptr<EnvBatch> LightBatch(const OptionColumns& options, std::int32_t first_row,
                                     std::int32_t num_envs) {
  auto configs = ReadConfigs<Env>(options, first_row, num_envs);
  // the loader has picked the instruction set of these
  if constexpr (Vectorized<Env>) {
    const auto kernels = BestKernels(configs[0]);
    return std::make_unique<LightEnvBatch<Env>>(std::move(configs), num_envs, kernels);
  } else {
    return std::make_unique<LightEnvBatch<Env>>(std::move(configs), num_envs);
  }
}

template <LightEnvironment Env>
std::vector<std::uint8_t> ConfigBytes(const OptionColumns& options, std::int32_t num_envs) {
  return BytesOf(ReadConfigs<Env>(options, 0, num_envs));
}

// The states of light environments are Reals, which have names then, or int32s.
template <LightEnvironment Env>
DeviceLayout LightLayout() {
  using State = typename Env::State;
  using Field = std::conditional_t<Watched<Env>, Real, std::int32_t>;
  static_assert(sizeof(State) % sizeof(Field) == 0 && alignof(State) == alignof(Field));
  return {.state_fields = sizeof(State) / sizeof(Field),
          .real_state = Watched<Env>,
          .config_bytes = sizeof(typename Env::Config),
          .configs = ConfigBytes<Env>,
          .worlds = {}};
}

}  // namespace

std::vector<RegistryEntry> LightEntries() {
#define ROLLOUTS_LIGHT_ENV(ID, TYPE, HEADER, MAX_STEPS, THRESHOLD) \
  RegistryEntry{ID,    MAX_STEPS, THRESHOLD, /*cpu_only=*/false, HEADER,        \
                #TYPE, LightOptions<TYPE>, LightSpec<TYPE>, LightBatch<TYPE>,           \
                /*multi_agent=*/false, LightLayout<TYPE>()},
  return {
#include "registry_light_entries.inc"
  };
#undef ROLLOUTS_LIGHT_ENV
}

}  // namespace rollouts
