// SPDX-License-Identifier: Apache-2.0
// Environments that own an engine, as a batch of a pool.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rollouts/core/step.h"
#include "rollouts/pool/env_batch.h"
#include "rollouts/pool/errors.h"
#include "rollouts/pool/model_columns.h"
#include "rollouts/pool/options.h"
#include "rollouts/pool/spec_difference.h"

namespace rollouts {

// A heavy environment whose state can be saved; core/env.h has the contract.
template <typename Env>
concept Saveable = requires(const Env& env, Env& target, std::vector<std::uint8_t>& out) {
  env.SaveState(out);
  target.LoadState(out);
};

// A heavy environment whose engine draws it; those without are drawn in Python.
template <typename Env>
concept Drawn = requires(const Env& env, std::vector<std::uint8_t>& rgb) {
  { env.Render(rgb) } -> std::same_as<std::array<std::int32_t, 2>>;
};

// A heavy environment that shares something, such as a model, with others of its options.
template <typename Env>
concept Sharing = requires(const typename Env::Config& config) { Env::Share(config); };

// A heavy environment whose model has fields that may differ from the file's.
template <typename Env>
concept HasModel = requires(const Env& env, Env& target, const ModelOverrides& overrides) {
  env.CheckOverrides(overrides);
  target.SetModel(overrides);
  env.model_overrides();
};

// Environments that own an engine. Each failure stays with its environment: its
// row says truncated and shows zeros, and its next step begins a new episode.
template <typename Env>
class HeavyEnvBatch final : public EnvBatch {
 public:
  // `configs`: one for all environments, or one for each.
  HeavyEnvBatch(std::vector<typename Env::Config> configs, std::int32_t num_envs)
      : shared_(Shared(configs)),
        spec_(CommonSpec(configs)),
        configs_(std::move(configs)),
        envs_(num_envs),
        clocks_(num_envs) {}

  const EnvSpec& spec() const override { return spec_; }
  void Make(std::int32_t first, std::int32_t count) override {
    for (std::int32_t i = first; i < first + count; ++i) {
      // one at a time: an engine's constructor may write what is global in the engine
      const std::lock_guard lock(make_mutex_);
      envs_[i] = std::make_unique<Env>(ConfigOf(i));
    }
  }
  EpisodeClock& clock(std::int32_t env) override { return clocks_[env].value; }

  void Run(std::span<const std::int32_t> envs, const Work& work, RowSource& source) override {
    for (const std::int32_t env : envs) {
      RowSource::Rows rows;
      const auto take_row = [&] {
        if (rows.count == 0) rows = source.Take(1);
        return RowRef{rows.view, rows.first};
      };
      const auto write_info = [&](const RowRef& out) {
        double values[EnvSpec::kMaxInfoValues] = {};
        envs_[env]->WriteInfo(values);
        WriteInfo(values, out);
      };
      RunOrFail(env, work, *envs_[env], clocks_[env].value, source, take_row, write_info,
                [&](const RowRef& out) { WriteInfo(kNoInfo, out); });
      source.Finish(rows);
    }
  }

  std::span<std::uint8_t> StateBytes(std::int32_t) override { return {}; }

  void SaveState(std::int32_t env, std::vector<std::uint8_t>& out) const override {
    CheckState(env, {});
    if constexpr (Saveable<Env>) envs_[env]->SaveState(out);
  }

  void CheckState(std::int32_t, std::span<const std::uint8_t>) const override {
    if constexpr (!Saveable<Env>) throw SpecError("environments of this kind save no state");
  }

  void LoadState(std::int32_t env, std::span<const std::uint8_t> state) override {
    CheckState(env, state);
    if constexpr (Saveable<Env>) envs_[env]->LoadState(state);
  }

  Frame Render(std::int32_t env) const override {
    if constexpr (Drawn<Env>) {
      Frame frame;
      const auto [height, width] = envs_[env]->Render(frame.rgb);
      frame.height = height;
      frame.width = width;
      return frame;
    } else {
      return EnvBatch::Render(env);
    }
  }

  Options OptionsOf(std::int32_t env) const override { return ListOptions<Env>(ConfigOf(env)); }

  // An environment whose options change is built anew.
  std::function<void()> Prepare(std::span<const std::int32_t> envs, const EnvChanges& given,
                                std::int32_t first_row) override {
    const auto changes = std::make_shared<std::vector<Change>>();
    // before the change, which must not run out of memory
    if (!given.options.empty() && configs_.size() == 1) {
      configs_.resize(envs_.size(), typename Env::Config(configs_[0]));
    }
    for (const std::int32_t env : envs) {
      Change change{env, {}, {}, {}};
      if (!given.options.empty()) PrepareConfig(change, given.options, first_row);
      PrepareModel(change, given.model, first_row);
      changes->push_back(std::move(change));
    }
    return [this, changes] {
      for (Change& change : *changes) {
        if (change.config) std::swap(configs_[change.env], *change.config);
        if (change.built) std::swap(envs_[change.env], change.built);
        if constexpr (HasModel<Env>) {
          if (change.model) envs_[change.env]->SetModel(std::move(*change.model));
        }
      }
    };
  }

  ModelArray ReadModel(std::int32_t env, const std::string& field,
                       bool of_file) const override {
    if constexpr (HasModel<Env>) {
      return envs_[env]->ReadModel(field, of_file);
    } else {
      return EnvBatch::ReadModel(env, field, of_file);
    }
  }

  std::vector<std::string> ModelFields(std::int32_t env) const override {
    if constexpr (HasModel<Env>) {
      return envs_[env]->ModelFields();
    } else {
      return EnvBatch::ModelFields(env);
    }
  }

 private:
  struct Change {
    std::int32_t env;
    std::optional<typename Env::Config> config;  // none: as before, as with the next two
    std::unique_ptr<Env> built;
    std::optional<ModelOverrides> model;
  };

  void PrepareConfig(Change& change, const OptionColumns& given, std::int32_t first_row) const {
    auto config = ReadConfig<Env>(given, first_row + change.env, ConfigOf(change.env));
    if (ListOptions<Env>(config) == OptionsOf(change.env)) return;
    const std::string difference = SpecDifference(spec_, Env::MakeSpec(config));
    if (!difference.empty()) {
      throw SpecError("these options would change the " + difference +
                      "; make a new pool for them");
    }
    change.built = std::make_unique<Env>(config);
    change.config = std::move(config);
  }

  // An environment that is built anew keeps what its model was given before.
  void PrepareModel(Change& change, const ModelColumns& given, std::int32_t first_row) const {
    if constexpr (HasModel<Env>) {
      const Env& before = *envs_[change.env];
      if (given.empty() && !change.built) return;
      ModelOverrides next = MergeOverrides(before.model_overrides(), given, first_row + change.env);
      try {
        (change.built ? *change.built : before).CheckOverrides(next);
      } catch (const SpecError& error) {
        throw SpecError("row " + std::to_string(first_row + change.env) + ": " + error.what());
      }
      change.model = std::move(next);
    } else if (!given.empty()) {
      throw SpecError(kNoModel);
    }
  }

  static std::vector<std::shared_ptr<const void>> Shared(
      const std::vector<typename Env::Config>& configs) {
    std::vector<std::shared_ptr<const void>> shared;
    if constexpr (Sharing<Env>) {
      for (const auto& config : configs) shared.push_back(Env::Share(config));
    }
    return shared;
  }

  // The spec that all have, but for its cost, which is that of the slowest.
  static EnvSpec CommonSpec(const std::vector<typename Env::Config>& configs) {
    EnvSpec common = Env::MakeSpec(configs[0]);
    for (std::size_t i = 1; i < configs.size(); ++i) {
      const EnvSpec spec = Env::MakeSpec(configs[i]);
      const std::string difference = SpecDifference(common, spec);
      if (!difference.empty()) {
        throw SpecError("the environments of a pool must have equal spaces, and the options of " +
                        std::string("environments 0 and ") + std::to_string(i) +
                        " make them differ in the " + difference);
      }
      common.step_cost_ns = std::max(common.step_cost_ns, spec.step_cost_ns);
    }
    return common;
  }

  const typename Env::Config& ConfigOf(std::int32_t env) const {
    return configs_[configs_.size() == 1 ? 0 : env];
  }

  static constexpr double kNoInfo[EnvSpec::kMaxInfoValues] = {};

  void WriteInfo(const double* values, const RowRef& out) const {
    for (std::int32_t i = 0; i < spec_.num_infos; ++i) {
      const std::int32_t size = spec_.infos[i].size();
      for (std::int64_t at = out.row * size; at < (out.row + 1) * size; ++at, ++values) {
        if (spec_.infos[i].dtype == DType::kInt32) {
          static_cast<std::int32_t*>(out.view.infos[i])[at] = static_cast<std::int32_t>(*values);
        } else {
          static_cast<double*>(out.view.infos[i])[at] = *values;
        }
      }
    }
  }

  // clocks of neighbours are written by different threads
  struct alignas(64) PaddedClock {
    EpisodeClock value;
  };
  // held for the life of the batch, and while specs and environments are made
  const std::vector<std::shared_ptr<const void>> shared_;
  const EnvSpec spec_;
  std::vector<typename Env::Config> configs_;
  std::mutex make_mutex_;
  std::vector<std::unique_ptr<Env>> envs_;
  std::vector<PaddedClock> clocks_;
};

}  // namespace rollouts
