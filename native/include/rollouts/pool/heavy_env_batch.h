// SPDX-License-Identifier: Apache-2.0
// Environments that own an engine, as a batch of a pool.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rollouts/core/step.h"
#include "rollouts/pool/env_batch.h"
#include "rollouts/pool/heavy_env.h"

namespace rollouts {

// Each failure stays with its environment: its row is truncated and shows zeros, and its next step
// begins a new episode.
class HeavyEnvBatch final : public EnvBatch {
 public:
  // `configs`: one for all environments, or one for each.
  HeavyEnvBatch(const HeavyType& type, std::vector<AnyConfig> configs, std::int32_t num_envs);

  // Makes environments of equal Configs, such as the defaults.
  template <typename Env>
  static std::unique_ptr<HeavyEnvBatch> Of(const typename Env::Config& config,
                                           std::int32_t num_envs) {
    std::vector<AnyConfig> configs{std::make_shared<const typename Env::Config>(config)};
    return std::make_unique<HeavyEnvBatch>(HeavyTypeOf<Env>(), std::move(configs), num_envs);
  }

  const EnvSpec& spec() const override { return spec_; }
  void Make(std::int32_t first, std::int32_t count) override;
  EpisodeClock& clock(std::int32_t env) override { return clocks_[env].value; }
  void Run(std::span<const std::int32_t> envs, const Work& work, RowSource& source) override;

  std::span<std::uint8_t> StateBytes(std::int32_t) override { return {}; }
  void SaveState(std::int32_t env, std::vector<std::uint8_t>& out) const override;
  void CheckState(std::int32_t env, std::span<const std::uint8_t> state) const override;
  void LoadState(std::int32_t env, std::span<const std::uint8_t> state) override;

  Frame Render(std::int32_t env) const override;
  Options OptionsOf(std::int32_t env) const override;
  EngineChoice EngineOf(std::int32_t env) const override { return envs_[env]->engine(); }
  void ListTallies(std::vector<std::shared_ptr<const EngineTallies>>& out) const override {
    if (tallies_) out.push_back(tallies_);
  }
  // Builds an environment anew when its options change.
  std::function<void()> Prepare(std::span<const std::int32_t> envs, const EnvChanges& given,
                                std::int32_t first_row) override;
  ModelArray ReadModel(std::int32_t env, const std::string& field, bool of_file) const override;
  std::vector<std::string> ModelFields(std::int32_t env) const override;

 private:
  struct Change {
    std::int32_t env;
    AnyConfig config;                 // null: unchanged, as with the next two
    std::unique_ptr<HeavyEnv> built;
    std::optional<ModelOverrides> model;
    bool steps_ahead = false;
  };
  // padded, because different threads write the clocks of neighbours
  struct alignas(64) PaddedClock {
    EpisodeClock value;
  };

  template <typename TakeRow>
  bool RunOne(std::int32_t env, const Work& work, RowSource& source, TakeRow&& take_row);
  void RunTurns(std::span<const std::int32_t> envs, const Work& work, RowSource& source);
  void RunAhead(std::span<const std::int32_t> envs, const Work& work, RowSource& source);
  void RunThenBegin(std::span<const std::int32_t> envs, const Work& work, RowSource& source,
                    const RowSource::Rows& rows);
  void StepAhead(std::span<const std::int32_t> envs, const Work& work);
  void BeginOne(std::int32_t env, RowSource& source, const RowRef& row, bool has_failed);
  template <typename IsDue>
  void BeginAhead(std::span<const std::int32_t> envs, IsDue&& is_due);
  void PrepareConfig(Change& change, const OptionColumns& given, std::int32_t first_row) const;
  void PrepareModel(Change& change, const ModelColumns& given, std::int32_t first_row) const;
  void WriteInfo(const double* values, const RowRef& out) const;
  const void* ConfigOf(std::int32_t env) const {
    return configs_[configs_.size() == 1 ? 0 : env].get();
  }

  const HeavyType& type_;
  // held as long as the batch exists, and while specs and environments are made
  const std::vector<std::shared_ptr<const void>> shared_;
  const EnvSpec spec_;
  std::vector<AnyConfig> configs_;
  bool steps_ahead_;  // the engine may step several at once; changed while none is in flight
  std::mutex make_mutex_;
  std::vector<std::unique_ptr<HeavyEnv>> envs_;
  std::vector<PaddedClock> clocks_;
  const std::shared_ptr<EngineTallies> tallies_;  // null where engines step one by one
};

}  // namespace rollouts
