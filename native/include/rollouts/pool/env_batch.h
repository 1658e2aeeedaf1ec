// SPDX-License-Identifier: Apache-2.0
// All environments of a pool behind one virtual call per chunk.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "rollouts/core/step.h"
#include "rollouts/pool/block.h"
#include "rollouts/pool/errors.h"

namespace rollouts {

// Hands out rows of the batch being filled. Take may return fewer rows than
// asked (a chunk can straddle two batches); Finish publishes them.
class RowSource {
 public:
  struct Rows {
    BatchView view;
    std::int64_t first = 0;
    std::int32_t count = 0;
    void* buffer = nullptr;
  };
  virtual Rows Take(std::int32_t count) = 0;
  virtual void Finish(const Rows& rows) = 0;
  // Records the failure of one environment; called before its row is finished.
  virtual void Fail(std::int32_t env, const std::string& message) = 0;

 protected:
  ~RowSource() = default;
};

// What to do and with which actions; arrays are indexed by environment.
struct Work {
  const Command* commands = nullptr;
  const std::uint8_t* actions = nullptr;
  std::int64_t action_bytes = 0;  // of one row
  StepRules rules;
};

// Owns the environments. Run may be called from several threads at once for
// disjoint environments; everything else only while none is in flight.
class EnvBatch {
 public:
  virtual ~EnvBatch() = default;
  virtual const EnvSpec& spec() const = 0;
  virtual EpisodeClock& clock(std::int32_t env) = 0;
  virtual void Run(std::span<const std::int32_t> envs, const Work& work, RowSource& rows) = 0;
  // Raw state of a light environment; empty for heavy ones, which have SaveState.
  virtual std::span<std::uint8_t> StateBytes(std::int32_t env) = 0;

  // The environment without its clock, in bytes: Save appends to `out`, Load takes them
  // over. Check throws SpecError for bytes that cannot be a state; where it does
  // not, Load may still fail in an engine, and leaves the environment undefined.
  virtual void SaveState(std::int32_t env, std::vector<std::uint8_t>& out) const = 0;
  virtual void CheckState(std::span<const std::uint8_t> state) const = 0;
  virtual void LoadState(std::int32_t env, std::span<const std::uint8_t> state) = 0;
};

// Environments whose whole state is plain data: an array of it, stepped in a loop,
// in blocks with vector instructions where the environment allows that.
template <typename Env>
class LightEnvBatch final : public EnvBatch {
  static_assert(std::is_trivially_copyable_v<typename Env::State>);
  static_assert(std::is_trivially_copyable_v<typename Env::Config>);
  using Action = typename Env::Action;

 public:
  LightEnvBatch(const typename Env::Config& config, std::int32_t num_envs,
                BlockKernels<Env> kernels = BaselineKernels<Env>())
      : config_(config), kernels_(kernels), lanes_(num_envs) {}

  const EnvSpec& spec() const override { return Env::kSpec; }
  EpisodeClock& clock(std::int32_t env) override { return lanes_[env].clock; }

  void Run(std::span<const std::int32_t> envs, const Work& work, RowSource& source) override {
    while (!envs.empty()) {
      const RowSource::Rows rows = source.Take(static_cast<std::int32_t>(envs.size()));
      RunRows(envs.first(rows.count), work, rows.view, rows.first);
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

  void CheckState(std::span<const std::uint8_t> state) const override {
    if (state.size() != sizeof(typename Env::State)) {
      throw SpecError("holds " + std::to_string(state.size()) + " bytes of an environment of " +
                      std::to_string(sizeof(typename Env::State)));
    }
  }

  void LoadState(std::int32_t env, std::span<const std::uint8_t> state) override {
    std::memcpy(&lanes_[env].state, state.data(), sizeof(typename Env::State));
  }

 private:
  struct Lane {
    typename Env::State state{};
    EpisodeClock clock;
  };

  void RunRows(std::span<const std::int32_t> envs, const Work& work, const BatchView& view,
               std::int64_t row) {
    if constexpr (Vectorized<Env>) {
      for (; !envs.empty(); row += kBlockEnvs) {
        const std::size_t count = std::min<std::size_t>(kBlockEnvs, envs.size());
        RunBlock(envs.first(count), work, view, row);
        envs = envs.subspan(count);
      }
    } else {
      for (const std::int32_t env : envs) RunOne(env, work, {view, row++});
    }
  }

  void RunOne(std::int32_t env, const Work& work, const RowRef& out) {
    Lane& lane = lanes_[env];
    LightEnv<Env> ref{config_, lane.state};
    RunCommand(work.commands[env], work.rules, ref, lane.clock, ActionOf(env, work),
               [&] { return out; }, [](const RowRef&) {});
  }

  // Steps every environment of the block at once, then looks at each; those that were
  // to reset take their own way, and what was stepped of them is dropped.
  void RunBlock(std::span<const std::int32_t> envs, const Work& work, const BatchView& view,
                std::int64_t first_row) {
    EnvBlock<Env> block;
    const auto count = static_cast<std::int32_t>(envs.size());
    for (std::int32_t i = 0; i < count; ++i) {
      block.Load(i, lanes_[envs[i]].state);
      block.action[i] = *ActionOf(envs[i], work);
    }
    kernels_.step(config_, block, count);

    for (std::int32_t i = 0; i < count; ++i) {
      const std::int32_t env = envs[i];
      Lane& lane = lanes_[env];
      const RowRef out{view, first_row + i};
      if (!IsStep(work.commands[env], lane.clock)) [[unlikely]] {
        RunOne(env, work, out);
        block.Load(i, lane.state);
        continue;
      }
      block.Store(i, lane.state);
      const auto result = StepResult::Of(block.reward[i], block.terminated[i] != 0);
      WriteOutcome(view, out.row, lane.clock, EndStep(work.rules, lane.clock, result));
      LightEnv<Env> ref{config_, lane.state};
      if (ResetInSameStep(work.rules, ref, lane.clock, out)) [[unlikely]] {
        block.Load(i, lane.state);
      }
    }
    kernels_.observe(config_, block, count, view.template ObsRow<typename Env::Obs>(first_row));
  }

  const Action* ActionOf(std::int32_t env, const Work& work) const {
    return reinterpret_cast<const Action*>(work.actions + env * work.action_bytes);
  }

  const typename Env::Config config_;
  const BlockKernels<Env> kernels_;
  std::vector<Lane> lanes_;
};

// A heavy environment whose state can be saved; core/env.h has the contract.
template <typename Env>
concept Saveable = requires(const Env& env, Env& target, std::vector<std::uint8_t>& out) {
  env.SaveState(out);
  target.LoadState(out);
};

// Environments that own an engine. Each failure stays with its environment: its
// row says truncated and shows zeros, and its next step begins a new episode.
template <typename Env>
class HeavyEnvBatch final : public EnvBatch {
 public:
  HeavyEnvBatch(const typename Env::Config& config, std::int32_t num_envs)
      : spec_(Env::MakeSpec(config)), clocks_(num_envs) {
    envs_.reserve(num_envs);
    for (std::int32_t i = 0; i < num_envs; ++i) envs_.push_back(std::make_unique<Env>(config));
  }

  const EnvSpec& spec() const override { return spec_; }
  EpisodeClock& clock(std::int32_t env) override { return clocks_[env].value; }

  void Run(std::span<const std::int32_t> envs, const Work& work, RowSource& source) override {
    using Action = typename Env::Action;
    for (const std::int32_t env : envs) {
      RowSource::Rows rows;
      const auto take_row = [&] {
        rows = source.Take(1);
        return RowRef{rows.view, rows.first};
      };
      const auto write_info = [&](const RowRef& out) { WriteInfo(*envs_[env], out); };
      EpisodeClock& clock = clocks_[env].value;
      const auto fail = [&](const char* what) {
        if (rows.count == 0) take_row();
        clock.ended = true;
        std::memset(rows.view.ObsRow<std::uint8_t>(rows.first), 0, rows.view.obs_bytes);
        if (rows.view.final_obs) {
          std::memset(rows.view.FinalObsRow<std::uint8_t>(rows.first), 0, rows.view.obs_bytes);
        }
        WriteOutcome(rows.view, rows.first, clock,
                     {.reward = 0, .terminated = false, .truncated = true});
        source.Fail(env, what);
      };
      try {
        RunCommand(work.commands[env], work.rules, *envs_[env], clock,
                   reinterpret_cast<const Action*>(work.actions + env * work.action_bytes),
                   take_row, write_info);
      } catch (const std::exception& error) {
        fail(error.what());
      } catch (...) {
        fail("an exception that is not a std::exception");
      }
      source.Finish(rows);
    }
  }

  std::span<std::uint8_t> StateBytes(std::int32_t) override { return {}; }

  void SaveState(std::int32_t env, std::vector<std::uint8_t>& out) const override {
    CheckState({});
    if constexpr (Saveable<Env>) envs_[env]->SaveState(out);
  }

  void CheckState(std::span<const std::uint8_t>) const override {
    if constexpr (!Saveable<Env>) throw SpecError("environments of this kind save no state");
  }

  void LoadState(std::int32_t env, std::span<const std::uint8_t> state) override {
    CheckState(state);
    if constexpr (Saveable<Env>) envs_[env]->LoadState(state);
  }

 private:
  void WriteInfo(const Env& env, const RowRef& out) const {
    double values[EnvSpec::kMaxInfos] = {};
    env.WriteInfo(values);
    for (std::int32_t i = 0; i < spec_.num_infos; ++i) {
      if (spec_.infos[i].dtype == DType::kInt32) {
        static_cast<std::int32_t*>(out.view.infos[i])[out.row] =
            static_cast<std::int32_t>(values[i]);
      } else {
        static_cast<double*>(out.view.infos[i])[out.row] = values[i];
      }
    }
  }

  // clocks of neighbours are written by different threads
  struct alignas(64) PaddedClock {
    EpisodeClock value;
  };
  const EnvSpec spec_;
  std::vector<std::unique_ptr<Env>> envs_;
  std::vector<PaddedClock> clocks_;
};

}  // namespace rollouts
