// SPDX-License-Identifier: Apache-2.0
// Environments that are plain data, as a batch of a pool.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "rollouts/core/step.h"
#include "rollouts/pool/block.h"
#include "rollouts/pool/configs.h"
#include "rollouts/pool/env_batch.h"
#include "rollouts/pool/run_or_fail.h"
#include "rollouts/pool/spec_difference.h"
#include "rollouts/support/errors.h"
#include "rollouts/support/options.h"
#include "rollouts/support/page_memory.h"

namespace rollouts {

// A light environment as the pool steps it.
template <typename Env>
struct PoolEnv : LightEnv<Env> {
  // Throws when the state is not finite any more.
  StepResult Step(const typename Env::Action* action, Rng& rng) {
    const StepResult result = LightEnv<Env>::Step(action, rng);
    if constexpr (Watched<Env>) {
      const auto fields = std::bit_cast<typename EnvBlock<Env>::Fields>(this->state);
      static_assert(std::size(Env::kStateNames) == fields.size());
      for (std::size_t f = 0; f < fields.size(); ++f) {
        if (!std::isfinite(fields[f])) [[unlikely]] ThrowNotFinite(Env::kStateNames[f], fields[f]);
      }
    }
    return result;
  }

 private:
  [[noreturn, gnu::cold, gnu::noinline]] static void ThrowNotFinite(const char* name, Real value) {
    const std::string shown = std::isnan(value) ? "nan" : (value < 0 ? "-inf" : "inf");
    throw std::runtime_error(std::string("its state is not finite after a step (") + name + " = " +
                             shown +
                             "); its options may be beyond what its integrator can stand");
  }
};

// Throws SpecError where options change the spec, because a kernel is compiled with the spec of the
// environment itself.
template <typename Env>
void CheckDeviceSpecs(const std::vector<typename Env::Config>& configs) {
  for (const auto& config : configs) {
    const std::string difference = SpecDifference(Env::kSpec, SpecUnder<Env>(config));
    if (difference.empty()) continue;
    throw SpecError("these options change the " + difference +
                    ", which a GPU's pool cannot: leave them out, or make a pool without device=");
  }
}

// Environments whose whole state is plain data: an array of it, stepped in a loop,
// in blocks with vector instructions where the environment allows that.
template <typename Env>
class LightEnvBatch final : public EnvBatch {
  static_assert(std::is_trivially_copyable_v<typename Env::State>);
  static_assert(std::is_trivially_copyable_v<typename Env::Config>);
  static_assert(Env::kSpec.reset_infos == kTellsInfo<Env>);
  static_assert(NumInfoValues<Env>() <= EnvSpec::kMaxInfoValues);
  using Action = typename Env::Action;

 public:
  // `configs`: one for all environments, or one for each.
  LightEnvBatch(std::vector<typename Env::Config> configs, std::int32_t num_envs,
                BlockKernels<Env> kernels = BaselineKernels<Env>())
      : configs_(std::move(configs)),
        spec_(SpecUnder<Env>(configs_[0])),
        kernels_(kernels),
        num_envs_(static_cast<std::size_t>(num_envs)),
        memory_(num_envs_ * sizeof(Lane)),
        lanes_(reinterpret_cast<Lane*>(memory_.data())) {
    for (std::size_t env = 0; env < (configs_.same() ? 1 : num_envs_); ++env) {
      CheckSpec(SpecUnder<Env>(configs_[static_cast<std::int32_t>(env)]));
    }
  }

  const EnvSpec& spec() const override { return spec_; }
  void Make(std::int32_t first, std::int32_t count) override {
    for (std::int32_t i = first; i < first + count; ++i) new (lanes_ + i) Lane();
  }
  EpisodeClock& clock(std::int32_t env) override { return lanes_[env].clock; }

  void Run(std::span<const std::int32_t> envs, const Work& work, RowSource& source) override {
    while (!envs.empty()) {
      const RowSource::Rows rows = source.Take(static_cast<std::int32_t>(envs.size()));
      RunRows(envs.first(rows.count), work, rows.view, rows.first, source);
      envs = envs.subspan(rows.count);
      source.Finish(rows);
    }
  }

  std::span<std::uint8_t> StateBytes(std::int32_t env) override {
    auto& state = lanes_[env].state;
    return {reinterpret_cast<std::uint8_t*>(&state), sizeof(state)};
  }

  void SaveState(std::int32_t env, std::vector<std::uint8_t>& out) const override {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&lanes_[env].state);
    out.insert(out.end(), bytes, bytes + sizeof(typename Env::State));
  }

  void CheckState(std::int32_t env, std::span<const std::uint8_t> state) const override {
    if (state.size() != sizeof(typename Env::State)) {
      throw SpecError("holds " + std::to_string(state.size()) + " bytes of an environment of " +
                      std::to_string(sizeof(typename Env::State)));
    }
    if constexpr (requires(const typename Env::State& read) {
                    Env::CheckState(configs_[env], read);
                  }) {
      // copied to separate memory, which is aligned
      const auto read = std::make_unique<typename Env::State>();
      std::memcpy(read.get(), state.data(), sizeof(*read));
      if (const char* wrong = Env::CheckState(configs_[env], *read)) throw SpecError(wrong);
    }
  }

  void LoadState(std::int32_t env, std::span<const std::uint8_t> state) override {
    std::memcpy(&lanes_[env].state, state.data(), sizeof(typename Env::State));
  }

  Options OptionsOf(std::int32_t env) const override { return ListOptions<Env>(configs_[env]); }

  std::function<void()> Prepare(std::span<const std::int32_t> envs, const EnvChanges& changes,
                                std::int32_t first_row) override {
    if (!changes.model.empty()) throw SpecError(kNoModel);
    const OptionColumns& given = changes.options;
    std::vector<typename Env::Config> next;
    if (configs_.same() && envs.size() == num_envs_ && !DifferByRow(given)) {
      next = {ReadConfig<Env>(given, 0, configs_[0])};
    } else {
      const auto num_envs = static_cast<std::int32_t>(num_envs_);
      next.reserve(num_envs_);
      for (std::int32_t env = 0; env < num_envs; ++env) next.push_back(configs_[env]);
      for (const std::int32_t env : envs) {
        next[env] = ReadConfig<Env>(given, first_row + env, configs_[env]);
      }
    }
    for (const auto& config : next) CheckSpec(SpecUnder<Env>(config));
    const auto prepared = std::make_shared<Configs<Env>>(std::move(next));
    return [this, prepared] { configs_ = std::move(*prepared); };
  }

 private:
  // Throws SpecError where the spec differs from that of all environments here.
  void CheckSpec(const EnvSpec& other) const {
    const std::string difference = SpecDifference(spec_, other);
    if (difference.empty()) return;
    throw SpecError("these options would change the " + difference +
                    ", which all environments of a pool share: make a pool for each");
  }

  struct Lane {
    typename Env::State state{};
    EpisodeClock clock;
  };
  static_assert(std::is_trivially_destructible_v<Lane>);

  void RunRows(std::span<const std::int32_t> envs, const Work& work, const BatchView& view,
               std::int64_t row, RowSource& source) {
    if constexpr (Vectorized<Env>) {
      for (; !envs.empty(); row += kBlockEnvs) {
        const std::size_t count = std::min<std::size_t>(kBlockEnvs, envs.size());
        RunBlock(envs.first(count), work, view, row, source);
        envs = envs.subspan(count);
      }
    } else {
      for (const std::int32_t env : envs) RunOne(env, work, {view, row++}, source);
    }
  }

  void RunOne(std::int32_t env, const Work& work, const RowRef& out, RowSource& source) {
    Lane& lane = lanes_[env];
    PoolEnv<Env> ref{{configs_[env], lane.state}};
    RunOrFail(
        env, work, ref, lane.clock, source, [&] { return out; },
        [&](const RowRef& row) { ref.WriteInfoRow(row.view.infos, row.row); },
        [](const RowRef& row) {
          const double none[EnvSpec::kMaxInfoValues] = {};
          StoreInfos<Env>(none, row.view.infos, row.row);
        });
  }

  // Draws the first words that the steps of a block need.
  void DrawSteps(std::span<const std::int32_t> envs, Draws& draws) const
    requires DrawsInSteps<Env>
  {
    if (configs_.same() && !Env::StepDraws(configs_[0])) {
      draws = {};
      return;
    }
    const auto count = static_cast<std::int32_t>(envs.size());
    for (std::int32_t i = 0; i < count; ++i) {
      const EpisodeClock& clock = lanes_[envs[i]].clock;
      draws.Load(i, clock.seed, clock.stream_id, clock.next_episode - 1, clock.draws);
    }
    DrawBlocks(draws, count);
  }

  // Steps every environment of the block at once, then examines each. The step of an environment
  // that was to be reset is dropped. Environments whose step does not count are stepped last, one
  // by one.
  void RunBlock(std::span<const std::int32_t> envs, const Work& work, const BatchView& view,
                std::int64_t first_row, RowSource& source) {
    EnvBlock<Env> block;
    const auto count = static_cast<std::int32_t>(envs.size());
    for (std::int32_t i = 0; i < count; ++i) {
      block.Load(i, lanes_[envs[i]].state);
      block.action[i] = *ActionOf(envs[i], work);
    }
    if constexpr (DrawsInSteps<Env>) DrawSteps(envs, block.draws);
    const SameConfig<Env> same{configs_[0]};
    typename Configs<Env>::Gathered gathered;
    ConfigLanes<Env> each;
    if (configs_.same()) {
      kernels_.step(same, block, count);
    } else {
      each = configs_.Lanes(envs, gathered);
      kernels_.step_each(each, block, count);
    }

    // infos are written first, because below an environment whose episode ended may begin the next
    // one
    if constexpr (kTellsInfo<Env>) {
      if (configs_.same()) {
        kernels_.tell(same, block, count, view.infos, first_row);
      } else {
        kernels_.tell_each(each, block, count, view.infos, first_row);
      }
    }

    static_assert(kBlockEnvs <= 64);
    std::uint64_t apart = 0;
    for (std::int32_t i = 0; i < count; ++i) {
      Lane& lane = lanes_[envs[i]];
      LightEnv<Env> ref{configs_[envs[i]], lane.state};
      const RowRef out{view, first_row + i};
      const Command command = work.commands[envs[i]];
      if (!IsStep(command, lane.clock)) [[unlikely]] {
        if (command != Command::kObserve) {
          BeginEpisode(ref, lane.clock, command == Command::kReset);
        }
        WriteOutcome(view, out.row, lane.clock, {});
        ref.WriteInfoRow(view.infos, out.row);
        block.Load(i, lane.state);
        continue;
      }
      if (std::isnan(block.ended[i])) [[unlikely]] {
        apart |= std::uint64_t{1} << i;
        continue;
      }
      block.Store(i, lane.state);
      if constexpr (DrawsInSteps<Env>) lane.clock.draws += block.draws.taken[i];
      const auto result = StepResult::Of(block.reward[i], block.ended[i] != 0);
      WriteOutcome(view, out.row, lane.clock, EndStep(work.rules, lane.clock, result));
      if (ResetInSameStep(work.rules, ref, lane.clock, out)) [[unlikely]] {
        block.Load(i, lane.state);
      }
    }
    auto* obs = view.template ObsRow<typename Env::Obs>(first_row);
    if (configs_.same()) {
      kernels_.observe(same, block, count, obs);
    } else {
      kernels_.observe_each(each, block, count, obs);
    }
    for (; apart != 0; apart &= apart - 1) {
      const std::int32_t i = std::countr_zero(apart);
      RunOne(envs[i], work, {view, first_row + i}, source);
    }
  }

  const Action* ActionOf(std::int32_t env, const Work& work) const {
    return reinterpret_cast<const Action*>(work.actions + env * work.action_bytes);
  }

  Configs<Env> configs_;
  const EnvSpec spec_;
  const BlockKernels<Env> kernels_;
  const std::size_t num_envs_;
  const PageMemory memory_;
  Lane* const lanes_;
};

}  // namespace rollouts
