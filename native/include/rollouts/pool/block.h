// SPDX-License-Identifier: Apache-2.0
// A block of environments of one type, field by field, for loops that the compiler
// turns into vector instructions.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "rollouts/core/env.h"
#include "rollouts/core/info_columns.h"
#include "rollouts/pool/configs.h"
#include "rollouts/pool/draws.h"

namespace rollouts {

// A light environment whose state consists of Reals with these names, which have to stay finite.
template <typename Env>
concept Watched = requires { Env::kStateNames; };

// States, actions and results of up to kBlockEnvs environments. The values are
// copies; the pool loads them before the step and stores them after it.
template <typename Env>
struct EnvBlock {
  using State = typename Env::State;
  using Field = std::conditional_t<Watched<Env>, Real, std::int32_t>;
  static constexpr std::size_t kFields = sizeof(State) / sizeof(Field);
  using Fields = std::array<Field, kFields>;
  struct Nothing {};

  alignas(64) Field state[kFields][kBlockEnvs];
  alignas(64) typename Env::Action action[kBlockEnvs];
  alignas(64) double reward[kBlockEnvs];
  // 1 where terminated, else 0; NaN where the step does not count, because the state is not finite
  // any more or the step took more words than were drawn. As wide as the reward, so that one loop
  // can write both
  alignas(64) double ended[kBlockEnvs];
  [[no_unique_address]] std::conditional_t<DrawsInSteps<Env>, Draws, Nothing> draws;

  void Load(std::int32_t i, const State& from) {
    static_assert(sizeof(State) % sizeof(Field) == 0 && alignof(State) == alignof(Field));
    const auto fields = std::bit_cast<Fields>(from);
    for (std::size_t f = 0; f < kFields; ++f) state[f][i] = fields[f];
  }
  [[gnu::always_inline]] State Get(std::int32_t i) const {
    Fields fields;
    for (std::size_t f = 0; f < kFields; ++f) fields[f] = state[f][i];
    return std::bit_cast<State>(fields);
  }
  void Store(std::int32_t i, State& to) const { to = Get(i); }

  // A generator of the numbers that environment i draws in its step; KeepRng stores how many it
  // took.
  [[gnu::always_inline]] auto GetRng(std::int32_t i) const {
    if constexpr (DrawsInSteps<Env>) {
      return draws.Lane(i);
    } else {
      return Rng(0, 0, 0);
    }
  }
  template <typename AnyRng>
  [[gnu::always_inline]] double KeepRng(std::int32_t i, const AnyRng& rng) {
    if constexpr (DrawsInSteps<Env>) {
      draws.taken[i] = rng.taken;
      return rng.valid() ? 0.0 : std::numeric_limits<double>::quiet_NaN();
    } else {
      return 0.0;
    }
  }
};

// The loops over a block, compiled for some instruction set: for environments that share
// one Config, and for environments with one each.
template <typename Env>
struct BlockKernels {
  template <typename ConfigsOf>
  using Step = void (*)(const ConfigsOf&, EnvBlock<Env>&, std::int32_t count);
  template <typename ConfigsOf>
  using Observe = void (*)(const ConfigsOf&, const EnvBlock<Env>&, std::int32_t count,
                           typename Env::Obs* obs);
  // writes the info columns, from row first_row on
  template <typename ConfigsOf>
  using Tell = void (*)(const ConfigsOf&, const EnvBlock<Env>&, std::int32_t count,
                        void* const* columns, std::int64_t first_row);
  Step<SameConfig<Env>> step = nullptr;
  Observe<SameConfig<Env>> observe = nullptr;
  Tell<SameConfig<Env>> tell = nullptr;
  Step<ConfigLanes<Env>> step_each = nullptr;
  Observe<ConfigLanes<Env>> observe_each = nullptr;
  Tell<ConfigLanes<Env>> tell_each = nullptr;
};

// `given[i]` is the Config of the block's environment i.
template <typename Env, typename ConfigsOf>
[[gnu::always_inline]] inline void StepBlock(const ConfigsOf& given, EnvBlock<Env>& block,
                                             std::int32_t count) {
  // copied, because loads through a reference in a branch prevent the vectorisation
  const ConfigsOf configs = given;
#pragma GCC ivdep
  for (std::int32_t i = 0; i < count; ++i) {
    auto rng = block.GetRng(i);
    auto state = block.Get(i);
    const typename Env::Action action = block.action[i];
    const StepResult result = Env::Step(configs[i], state, &action, rng);
    const auto fields = std::bit_cast<typename EnvBlock<Env>::Fields>(state);
    Real ended = result.terminated ? Real(1) : Real(0);
    for (std::size_t f = 0; f < fields.size(); ++f) {
      block.state[f][i] = fields[f];
      if constexpr (Watched<Env>) {
        ended += fields[f] * Real(0);
      }
    }
    block.reward[i] = result.reward;
    block.ended[i] = ended + block.KeepRng(i, rng);
  }
}

template <typename Env, typename ConfigsOf>
[[gnu::always_inline]] inline void ObserveBlock(const ConfigsOf& configs,
                                                const EnvBlock<Env>& block, std::int32_t count,
                                                typename Env::Obs* obs) {
  constexpr std::int64_t kSize = Env::kSpec.observation.size();
#pragma GCC ivdep
  for (std::int32_t i = 0; i < count; ++i) {
    const auto state = block.Get(i);
    Env::Observe(configs[i], state, obs + i * kSize);
  }
}

template <typename Env, typename ConfigsOf>
[[gnu::always_inline]] inline void TellBlock(const ConfigsOf& given, const EnvBlock<Env>& block,
                                             std::int32_t count, void* const* columns,
                                             std::int64_t first_row) {
  if constexpr (kTellsInfo<Env>) {
    const ConfigsOf configs = given;
    std::array<void*, Env::kSpec.num_infos> to;
    for (std::size_t c = 0; c < to.size(); ++c) to[c] = columns[c];
#pragma GCC ivdep
    for (std::int32_t i = 0; i < count; ++i) {
      double values[NumInfoValues<Env>()];
      Env::WriteInfo(configs[i], block.Get(i), values);
      StoreInfos<Env>(values, to.data(), first_row + i);
    }
  }
}

// The loops for the instruction set that all other code is compiled for.
template <typename Env>
BlockKernels<Env> BaselineKernels() {
  if constexpr (Vectorized<Env>) {
    const auto step = [](const auto& configs, auto& block, std::int32_t count) {
      StepBlock<Env>(configs, block, count);
    };
    const auto observe = [](const auto& configs, const auto& block, std::int32_t count,
                            auto* obs) { ObserveBlock<Env>(configs, block, count, obs); };
    const auto tell = [](const auto& configs, const auto& block, std::int32_t count,
                         void* const* columns, std::int64_t first_row) {
      TellBlock<Env>(configs, block, count, columns, first_row);
    };
    return {step, observe, tell, step, observe, tell};
  } else {
    return {};
  }
}

}  // namespace rollouts
