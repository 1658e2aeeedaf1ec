// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <utility>

#include "entries.h"
#include "registry_agents_includes.inc"
#include "rollouts/pool/multi_agent_batch.h"

namespace rollouts {

// defined in agent_kernels.cpp; the loader chooses the instruction set
#define ROLLOUTS_TYPE(TYPE) AgentKernels<TYPE> BestKernels(const TYPE::Config&);
#include "registry_agents_types.inc"
#undef ROLLOUTS_TYPE

namespace {

template <MultiAgentEnvironment Env>
Options AgentOptions() {
  return ListOptions<Env>({});
}

template <MultiAgentEnvironment Env>
EnvSpec AgentSpec(const OptionColumns& options) {
  return Env::MakeSpec(ReadConfig<Env>(options, 0));
}

template <MultiAgentEnvironment Env>
std::unique_ptr<EnvBatch> AgentBatch(const OptionColumns& options, std::int32_t first_row,
                                     std::int32_t num_envs) {
  auto configs = ReadConfigs<Env>(options, first_row, num_envs);
  AgentKernels<Env> kernels;
  if constexpr (requires { BestKernels(configs[0]); }) kernels = BestKernels(configs[0]);
  return std::make_unique<MultiAgentBatch<Env>>(configs, num_envs, kernels);
}

template <MultiAgentEnvironment Env>
DeviceLayout AgentLayout() {
  DeviceLayout layout;
  layout.config_bytes = sizeof(typename Env::Config);
  layout.configs = [](const OptionColumns& options, std::int32_t num_envs) {
    return BytesOf(ReadConfigs<Env>(options, 0, num_envs));
  };
  layout.worlds = [](const OptionColumns& options, std::int32_t num_envs) {
    return DescribeWorlds<Env>(ReadConfigs<Env>(options, 0, num_envs));
  };
  return layout;
}

}  // namespace

std::vector<RegistryEntry> AgentEntries() {
#define ROLLOUTS_AGENTS_ENV(ID, TYPE, HEADER, MAX_STEPS, THRESHOLD) \
  RegistryEntry{ID,    MAX_STEPS, THRESHOLD, /*cpu_only=*/false, HEADER,        \
                #TYPE, AgentOptions<TYPE>, AgentSpec<TYPE>, AgentBatch<TYPE>, /*multi_agent=*/true, \
                AgentLayout<TYPE>()},
  return {
#include "registry_agents_entries.inc"
  };
#undef ROLLOUTS_AGENTS_ENV
}

}  // namespace rollouts
