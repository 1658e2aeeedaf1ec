// SPDX-License-Identifier: Apache-2.0
#include "rollouts/pool/registry.h"

#include <limits>
#include <utility>

#include "registry_includes.inc"
#include "rollouts/pool/heavy_env_batch.h"
#include "rollouts/pool/mixed_env_batch.h"

namespace rollouts {

// defined in block_kernels.cpp
#define ROLLOUTS_LIGHT_TYPE(TYPE) BlockKernels<TYPE> BestKernels(const TYPE::Config&);
#include "registry_vectorized_types.inc"
#undef ROLLOUTS_LIGHT_TYPE

namespace {

template <typename Env>
Options DefaultOptions() {
  return ListOptions<Env>({});
}

template <typename Env>
EnvSpec LightSpec(const OptionColumns& options) {
  ReadConfig<Env>(options, 0);  // unknown options are errors here too
  return Env::kSpec;
}

template <typename Env>
EnvSpec HeavySpec(const OptionColumns& options) {
  return Env::MakeSpec(ReadConfig<Env>(options, 0));
}

template <typename Env>
std::unique_ptr<EnvBatch> LightBatch(const OptionColumns& options, std::int32_t first_row,
                                     std::int32_t num_envs) {
  auto configs = ReadConfigs<Env>(options, first_row, num_envs);
  if constexpr (Vectorized<Env>) {
    const auto kernels = BestKernels(configs[0]);
    return std::make_unique<LightEnvBatch<Env>>(std::move(configs), num_envs, kernels);
  } else {
    return std::make_unique<LightEnvBatch<Env>>(std::move(configs), num_envs);
  }
}

template <typename Env>
std::unique_ptr<EnvBatch> HeavyBatch(const OptionColumns& options, std::int32_t first_row,
                                     std::int32_t num_envs) {
  return std::make_unique<HeavyEnvBatch<Env>>(ReadConfigs<Env>(options, first_row, num_envs),
                                              num_envs);
}

std::unique_ptr<EnvBatch> MakeSegment(const Segment& segment, const OptionColumns& options,
                                      std::int32_t first_row) {
  if (segment.internal.empty()) {
    return segment.entry->make_batch(options, first_row, segment.num_envs);
  }
  OptionColumns all = options;
  all.insert(segment.internal.begin(), segment.internal.end());
  return segment.entry->make_batch(all, first_row, segment.num_envs);
}

}  // namespace

const std::vector<RegistryEntry>& Registry() {
#define ROLLOUTS_LIGHT_ENV(ID, TYPE, HEADER, MAX_STEPS, THRESHOLD) \
  RegistryEntry{ID,    MAX_STEPS, THRESHOLD, /*cpu_only=*/false, HEADER,          \
                #TYPE, DefaultOptions<TYPE>, LightSpec<TYPE>, LightBatch<TYPE>},
#define ROLLOUTS_HEAVY_ENV(ID, TYPE, HEADER, MAX_STEPS, THRESHOLD) \
  RegistryEntry{ID,    MAX_STEPS, THRESHOLD, /*cpu_only=*/true, HEADER,           \
                #TYPE, DefaultOptions<TYPE>, HeavySpec<TYPE>, HeavyBatch<TYPE>},
  static const std::vector<RegistryEntry> entries = {
#include "registry_entries.inc"
  };
#undef ROLLOUTS_LIGHT_ENV
#undef ROLLOUTS_HEAVY_ENV
  return entries;
}

const RegistryEntry& FindEntry(const std::string& id) {
  for (const RegistryEntry& entry : Registry()) {
    if (entry.id == id) return entry;
  }
  throw SpecError("unknown environment '" + id + "'; rollouts.env_ids() lists what there is");
}

std::unique_ptr<EnvBatch> MakeEnvBatch(std::span<const Segment> segments,
                                       const OptionColumns& options) {
  if (segments.size() == 1) return MakeSegment(segments[0], options, 0);
  std::vector<MixedEnvBatch::Part> parts;
  std::int32_t first = 0;
  for (const Segment& segment : segments) {
    parts.push_back({first, segment.num_envs, segment.max_episode_steps,
                     MakeSegment(segment, options, first)});
    first += segment.num_envs;
  }
  return std::make_unique<MixedEnvBatch>(std::move(parts));
}

}  // namespace rollouts
