// SPDX-License-Identifier: Apache-2.0
// Environments of several ids in one batch: consecutive parts, each an EnvBatch with its own time
// limit.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rollouts/pool/env_batch.h"
#include "rollouts/pool/spec_difference.h"

namespace rollouts {

class MixedEnvBatch final : public EnvBatch {
 public:
  struct Part {
    std::int32_t first = 0;  // its first environment in the whole
    std::int32_t num_envs = 0;
    std::int32_t max_episode_steps = 0;  // 0: no limit
    std::unique_ptr<EnvBatch> envs;
  };

  // Throws SpecError where the parts' spaces or info columns differ.
  explicit MixedEnvBatch(std::vector<Part> parts)
      : parts_(std::move(parts)), spec_(CommonSpec(parts_)) {}

  const EnvSpec& spec() const override { return spec_; }

  void Make(std::int32_t first, std::int32_t count) override {
    for (const Part& part : parts_) {
      const std::int32_t begin = std::max(first, part.first);
      const std::int32_t end = std::min(first + count, part.first + part.num_envs);
      if (begin < end) part.envs->Make(begin - part.first, end - begin);
    }
  }

  EpisodeClock& clock(std::int32_t env) override {
    const Part& part = PartOf(env);
    return part.envs->clock(env - part.first);
  }

  void Run(std::span<const std::int32_t> envs, const Work& work, RowSource& source) override {
    while (!envs.empty()) {
      // consecutive environments of one part run together
      const Part& part = PartOf(envs[0]);
      std::array<std::int32_t, kRun> local;
      std::size_t count = 0;
      while (count < std::min(envs.size(), local.size())) {
        const std::int32_t env = envs[count] - part.first;
        if (env < 0 || env >= part.num_envs) break;
        local[count++] = env;
      }
      Work own = work;
      own.commands += part.first;
      own.actions += part.first * work.action_bytes;
      own.rules.max_episode_steps = part.max_episode_steps;
      PartRows rows(source, part.first);
      part.envs->Run({local.data(), count}, own, rows);
      envs = envs.subspan(count);
    }
  }

  std::span<std::uint8_t> StateBytes(std::int32_t env) override {
    const Part& part = PartOf(env);
    return part.envs->StateBytes(env - part.first);
  }

  void SaveState(std::int32_t env, std::vector<std::uint8_t>& out) const override {
    const Part& part = PartOf(env);
    part.envs->SaveState(env - part.first, out);
  }

  void CheckState(std::int32_t env, std::span<const std::uint8_t> state) const override {
    const Part& part = PartOf(env);
    part.envs->CheckState(env - part.first, state);
  }

  void LoadState(std::int32_t env, std::span<const std::uint8_t> state) override {
    const Part& part = PartOf(env);
    part.envs->LoadState(env - part.first, state);
  }

  Frame Render(std::int32_t env) const override {
    const Part& part = PartOf(env);
    return part.envs->Render(env - part.first);
  }

  WorldArrays ReadWorld(std::int32_t env, bool first) const override {
    const Part& part = PartOf(env);
    return part.envs->ReadWorld(env - part.first, first);
  }

  Options OptionsOf(std::int32_t env) const override {
    const Part& part = PartOf(env);
    return part.envs->OptionsOf(env - part.first);
  }

  EngineChoice EngineOf(std::int32_t env) const override {
    const Part& part = PartOf(env);
    return part.envs->EngineOf(env - part.first);
  }

  void ListTallies(std::vector<std::shared_ptr<const EngineTallies>>& out) const override {
    for (const Part& part : parts_) part.envs->ListTallies(out);
  }

  std::function<void()> Prepare(std::span<const std::int32_t> envs, const EnvChanges& changes,
                                std::int32_t first_row) override {
    std::vector<std::function<void()>> prepared;
    for (const Part& part : parts_) {
      std::vector<std::int32_t> own;
      for (const std::int32_t env : envs) {
        const std::int32_t local = env - part.first;
        if (local >= 0 && local < part.num_envs) own.push_back(local);
      }
      if (own.empty()) continue;
      prepared.push_back(part.envs->Prepare(own, changes, first_row + part.first));
    }
    return [prepared = std::move(prepared)] {
      for (const auto& put_in_place : prepared) put_in_place();
    };
  }

  ModelArray ReadModel(std::int32_t env, const std::string& field,
                       bool of_file) const override {
    const Part& part = PartOf(env);
    return part.envs->ReadModel(env - part.first, field, of_file);
  }

  std::vector<std::string> ModelFields(std::int32_t env) const override {
    const Part& part = PartOf(env);
    return part.envs->ModelFields(env - part.first);
  }

 private:
  static constexpr std::size_t kRun = 1024;  // environments that are passed on at once

  // Forwards to the batch's source, with environments numbered as in the whole batch.
  class PartRows final : public RowSource {
   public:
    PartRows(RowSource& source, std::int32_t first) : source_(source), first_(first) {}
    Rows Take(std::int32_t count) override { return source_.Take(count); }
    void Finish(const Rows& rows) override { source_.Finish(rows); }
    void Fail(std::int32_t env, const std::string& message) override {
      source_.Fail(first_ + env, message);
    }

   private:
    RowSource& source_;
    const std::int32_t first_;
  };

  static EnvSpec CommonSpec(const std::vector<Part>& parts) {
    EnvSpec common = parts[0].envs->spec();
    for (const Part& part : parts) {
      const EnvSpec& spec = part.envs->spec();
      const std::string difference = SpecDifference(common, spec);
      if (!difference.empty()) {
        throw SpecError("the environments of a pool must have equal spaces, and environments 0 and " +
                        std::to_string(part.first) + " differ in the " + difference);
      }
      common.step_cost_ns = std::max(common.step_cost_ns, spec.step_cost_ns);
      common.together = std::max(common.together, spec.together);
    }
    return common;
  }

  const Part& PartOf(std::int32_t env) const {
    const auto after = std::upper_bound(
        parts_.begin(), parts_.end(), env,
        [](std::int32_t wanted, const Part& part) { return wanted < part.first; });
    return *(after - 1);
  }

  const std::vector<Part> parts_;
  const EnvSpec spec_;
};

}  // namespace rollouts
