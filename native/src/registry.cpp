// SPDX-License-Identifier: Apache-2.0
#include "rollouts/pool/registry.h"

#include <limits>

#include "registry_includes.inc"

// One function body, compiled for several instruction sets; the loader picks the
// best that the machine has. Without fused multiply-add contraction all of them
// give the same bits. `flatten`, because a call left in the loop stops the vectoriser.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define ROLLOUTS_CLONES \
  __attribute__((flatten, target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ROLLOUTS_CLONES __attribute__((flatten))
#endif

namespace rollouts {

// The block loops of each light environment: target_clones works on plain functions only.
#define ROLLOUTS_LIGHT_TYPE(TYPE)                                                              \
  ROLLOUTS_CLONES void Step##TYPE##Block(const TYPE::Config& config, EnvBlock<TYPE>& block,    \
                                         std::int32_t count) {                                 \
    StepBlock<TYPE>(config, block, count);                                                     \
  }                                                                                            \
  ROLLOUTS_CLONES void Observe##TYPE##Block(const TYPE::Config& config,                        \
                                            const EnvBlock<TYPE>& block, std::int32_t count,   \
                                            TYPE::Obs* obs) {                                  \
    ObserveBlock<TYPE>(config, block, count, obs);                                             \
  }                                                                                            \
  BlockKernels<TYPE> BestKernels(const TYPE::Config&) {                                        \
    return {Step##TYPE##Block, Observe##TYPE##Block};                                          \
  }
#include "registry_vectorized_types.inc"
#undef ROLLOUTS_LIGHT_TYPE

namespace {

template <typename Env>
typename Env::Config ReadConfig(const Options& options) {
  typename Env::Config config;
  OptionReader reader(options);
  Env::VisitConfig(config, reader);
  reader.CheckAllTaken();
  return config;
}

template <typename Env>
Options AllOptions(const Options& given) {
  auto config = ReadConfig<Env>(given);
  OptionLister lister;
  Env::VisitConfig(config, lister);
  return lister.options;
}

template <typename Env>
EnvSpec LightSpec(const Options& options) {
  ReadConfig<Env>(options);  // unknown options are errors here too
  return Env::kSpec;
}

template <typename Env>
EnvSpec HeavySpec(const Options& options) {
  return Env::MakeSpec(ReadConfig<Env>(options));
}

template <typename Env>
std::unique_ptr<EnvBatch> LightBatch(const Options& options, std::int32_t num_envs) {
  const auto config = ReadConfig<Env>(options);
  if constexpr (Vectorized<Env>) {
    return std::make_unique<LightEnvBatch<Env>>(config, num_envs, BestKernels(config));
  } else {
    return std::make_unique<LightEnvBatch<Env>>(config, num_envs);
  }
}

template <typename Env>
std::unique_ptr<EnvBatch> HeavyBatch(const Options& options, std::int32_t num_envs) {
  return std::make_unique<HeavyEnvBatch<Env>>(ReadConfig<Env>(options), num_envs);
}

}  // namespace

const std::vector<RegistryEntry>& Registry() {
#define ROLLOUTS_LIGHT_ENV(ID, TYPE, HEADER, MAX_STEPS, THRESHOLD) \
  RegistryEntry{ID,    MAX_STEPS, THRESHOLD, /*cpu_only=*/false, HEADER,          \
                #TYPE, AllOptions<TYPE>, LightSpec<TYPE>, LightBatch<TYPE>},
#define ROLLOUTS_HEAVY_ENV(ID, TYPE, HEADER, MAX_STEPS, THRESHOLD) \
  RegistryEntry{ID,    MAX_STEPS, THRESHOLD, /*cpu_only=*/true, HEADER,           \
                #TYPE, AllOptions<TYPE>, HeavySpec<TYPE>, HeavyBatch<TYPE>},
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

}  // namespace rollouts
