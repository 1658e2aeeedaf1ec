// SPDX-License-Identifier: Apache-2.0
// All environments of a pool behind one virtual call per chunk.
#pragma once

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
  // Raw state of a light environment; empty for heavy ones, which have their own snapshots.
  virtual std::span<std::uint8_t> StateBytes(std::int32_t env) = 0;
};

// Environments whose whole state is plain data: arrays of it, stepped in a loop.
template <typename Env>
class LightEnvBatch final : public EnvBatch {
  static_assert(std::is_trivially_copyable_v<typename Env::State>);
  static_assert(std::is_trivially_copyable_v<typename Env::Config>);

 public:
  LightEnvBatch(const typename Env::Config& config, std::int32_t num_envs)
      : config_(config), lanes_(num_envs) {}

  const EnvSpec& spec() const override { return Env::kSpec; }
  EpisodeClock& clock(std::int32_t env) override { return lanes_[env].clock; }

  void Run(std::span<const std::int32_t> envs, const Work& work, RowSource& source) override {
    using Action = typename Env::Action;
    std::size_t next = 0;
    while (next < envs.size()) {
      const RowSource::Rows rows = source.Take(static_cast<std::int32_t>(envs.size() - next));
      for (std::int32_t i = 0; i < rows.count; ++i) {
        const std::int32_t env = envs[next + i];
        Lane& lane = lanes_[env];
        LightEnv<Env> ref{config_, lane.state};
        RunCommand(
            work.commands[env], work.rules, ref, lane.clock,
            reinterpret_cast<const Action*>(work.actions + env * work.action_bytes),
            [&] { return RowRef{rows.view, rows.first + i}; }, [](const RowRef&) {});
      }
      next += rows.count;
      source.Finish(rows);
    }
  }

  std::span<std::uint8_t> StateBytes(std::int32_t env) override {
    auto& state = lanes_[env].state;
    return {reinterpret_cast<std::uint8_t*>(&state), sizeof(state)};
  }

 private:
  struct Lane {
    typename Env::State state{};
    EpisodeClock clock;
  };
  const typename Env::Config config_;
  std::vector<Lane> lanes_;
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
        WriteOutcome(rows.view, rows.first, clock, 0, /*terminated=*/false, /*truncated=*/true);
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
