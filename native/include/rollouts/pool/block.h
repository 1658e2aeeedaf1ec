// SPDX-License-Identifier: Apache-2.0
// A block of environments of one type, field by field, for loops that the compiler
// turns into vector instructions.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "rollouts/core/env.h"

namespace rollouts {

inline constexpr std::int32_t kBlockEnvs = 64;

// An environment that declares kVectorized; core/env.h says what it promises.
template <typename Env>
concept Vectorized = requires { requires Env::kVectorized; };

// States, actions and results of up to kBlockEnvs environments. The values are
// copies; the pool loads them before the step and stores them after it.
template <typename Env>
struct EnvBlock {
  using State = typename Env::State;
  static constexpr std::size_t kFields = sizeof(State) / sizeof(Real);
  using Fields = std::array<Real, kFields>;

  alignas(64) Real state[kFields][kBlockEnvs];
  alignas(64) typename Env::Action action[kBlockEnvs];
  alignas(64) double reward[kBlockEnvs];
  // as wide as the reward, so that one loop can write both
  alignas(64) double terminated[kBlockEnvs];

  void Load(std::int32_t i, const State& from) {
    static_assert(sizeof(State) % sizeof(Real) == 0 && alignof(State) == alignof(Real));
    const auto fields = std::bit_cast<Fields>(from);
    for (std::size_t f = 0; f < kFields; ++f) state[f][i] = fields[f];
  }
  [[gnu::always_inline]] State Get(std::int32_t i) const {
    Fields fields;
    for (std::size_t f = 0; f < kFields; ++f) fields[f] = state[f][i];
    return std::bit_cast<State>(fields);
  }
  void Store(std::int32_t i, State& to) const { to = Get(i); }
};

// The loops over a block, compiled for some instruction set.
template <typename Env>
struct BlockKernels {
  void (*step)(const typename Env::Config&, EnvBlock<Env>&, std::int32_t count) = nullptr;
  void (*observe)(const typename Env::Config&, const EnvBlock<Env>&, std::int32_t count,
                  typename Env::Obs* obs) = nullptr;
};

template <typename Env>
[[gnu::always_inline]] inline void StepBlock(const typename Env::Config& config,
                                             EnvBlock<Env>& block, std::int32_t count) {
  Rng no_draws(0, 0, 0);
#pragma GCC ivdep
  for (std::int32_t i = 0; i < count; ++i) {
    auto state = block.Get(i);
    const StepResult result = Env::Step(config, state, &block.action[i], no_draws);
    const auto fields = std::bit_cast<typename EnvBlock<Env>::Fields>(state);
    for (std::size_t f = 0; f < fields.size(); ++f) block.state[f][i] = fields[f];
    block.reward[i] = result.reward;
    block.terminated[i] = result.terminated ? 1.0 : 0.0;
  }
}

template <typename Env>
[[gnu::always_inline]] inline void ObserveBlock(const typename Env::Config& config,
                                                const EnvBlock<Env>& block, std::int32_t count,
                                                typename Env::Obs* obs) {
  constexpr std::int64_t kSize = Env::kSpec.observation.size();
#pragma GCC ivdep
  for (std::int32_t i = 0; i < count; ++i) {
    const auto state = block.Get(i);
    Env::Observe(config, state, obs + i * kSize);
  }
}

// For the instruction set that everything else is compiled for.
template <typename Env>
BlockKernels<Env> BaselineKernels() {
  if constexpr (Vectorized<Env>) {
    return {[](const auto& config, auto& block, std::int32_t count) {
              StepBlock<Env>(config, block, count);
            },
            [](const auto& config, const auto& block, std::int32_t count, auto* obs) {
              ObserveBlock<Env>(config, block, count, obs);
            }};
  } else {
    return {};
  }
}

}  // namespace rollouts
