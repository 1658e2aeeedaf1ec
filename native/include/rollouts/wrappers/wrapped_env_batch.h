// SPDX-License-Identifier: Apache-2.0
// Environments with wrappers around them, as a batch of a pool.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rollouts/pool/env_batch.h"
#include "rollouts/wrappers/frames.h"
#include "rollouts/wrappers/normalizer.h"
#include "rollouts/wrappers/wrappers.h"

namespace rollouts {

// Wrapped environments. The thread that steps a row computes all that depends on this row alone;
// statistics that are updated wait for the whole batch.
class WrappedEnvBatch final : public EnvBatch, private BatchFinisher {
 public:
  // Takes environments with one agent, whose spaces fit the wrappers: Python has checked that.
  WrappedEnvBatch(std::unique_ptr<EnvBatch> envs, Wrappers wrappers, std::int32_t num_envs);

  const EnvSpec& spec() const override { return spec_; }
  void Make(std::int32_t first, std::int32_t count) override { envs_->Make(first, count); }
  EpisodeClock& clock(std::int32_t env) override { return envs_->clock(env); }
  void Run(std::span<const std::int32_t> envs, const Work& work, RowSource& source) override;
  std::span<std::uint8_t> StateBytes(std::int32_t env) override { return envs_->StateBytes(env); }

  // Saves the environment's own state, then what the wrappers keep of it.
  void SaveState(std::int32_t env, std::vector<std::uint8_t>& out) const override;
  void CheckState(std::int32_t env, std::span<const std::uint8_t> state) const override;
  void LoadState(std::int32_t env, std::span<const std::uint8_t> state) override;

  Frame Render(std::int32_t env) const override { return envs_->Render(env); }
  // Adds the wrappers that a saved state has parts of.
  Options OptionsOf(std::int32_t env) const override;
  EngineChoice EngineOf(std::int32_t env) const override { return envs_->EngineOf(env); }
  void ListTallies(std::vector<std::shared_ptr<const EngineTallies>>& out) const override {
    envs_->ListTallies(out);
  }
  std::function<void()> Prepare(std::span<const std::int32_t> envs, const EnvChanges& changes,
                                std::int32_t first_row) override {
    return envs_->Prepare(envs, changes, first_row);
  }
  ModelArray ReadModel(std::int32_t env, const std::string& field, bool of_file) const override {
    return envs_->ReadModel(env, field, of_file);
  }
  std::vector<std::string> ModelFields(std::int32_t env) const override {
    return envs_->ModelFields(env);
  }

  BatchFinisher* Finisher() override { return Counts() ? this : nullptr; }
  void Count(const BatchView& view, std::int64_t first, std::int32_t count,
             std::span<const Command> commands) override;
  void Scale(const BatchView& view, std::int64_t first, std::int32_t count) const override {
    normalizer_.Scale(view, first, count);
  }
  RunningMoments* Statistics(StatisticsOf of) override;
  void RefreshStatistics() override { normalizer_.Refresh(); }
  bool updates_statistics() const override { return updates_; }
  void UpdateStatistics(bool updates) override { updates_ = updates; }

 private:
  class Rows;

  bool ChangesActions() const { return wrappers_.clip_action || wrappers_.rescale_action; }
  // Tells if batches are counted.
  bool Counts() const { return normalizer_.any() && updates_; }

  // Returns the action rows that environments get.
  const std::uint8_t* ChangeActions(std::span<const std::int32_t> envs, const Work& work);
  void FinishRows(std::span<const std::int32_t> envs, const Work& work, const BatchView& shown,
                  const RowSource::Rows& rows);
  void WriteFrames(std::int32_t env, Command command, const BatchView& shown, const RowRef& out);
  std::int64_t kept_bytes() const;

  const Wrappers wrappers_;
  const std::unique_ptr<EnvBatch> envs_;
  std::optional<Frames> frames_;  // set if wrappers change the observations' elements
  const EnvSpec spec_;
  Normalizer normalizer_;
  bool updates_ = true;          // updates statistics; changes only while nothing is in flight
  std::vector<float> actions_;   // action rows that environments get, if wrappers change them
};

}  // namespace rollouts
