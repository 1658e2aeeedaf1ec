// SPDX-License-Identifier: Apache-2.0
// Statistics of an owner outside of the pool, for one rollout.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "rollouts/pool/env_batch.h"
#include "rollouts/wrappers/normalizer.h"

namespace rollouts {

// Counts and scales the steps of a rollout, whose rows are the environments in order. The
// statistics are put in before the rollout and taken out after it. Keeps the last step's values
// from before they were scaled.
class StepNormalizer final : public BatchFinisher {
 public:
  StepNormalizer(const Wrappers& wrappers, const SpaceSpec& observation, std::int32_t num_envs,
                 bool updates)
      : normalizer_(wrappers, observation, num_envs), updates_(updates) {}

  Normalizer& normalizer() { return normalizer_; }
  const std::vector<std::uint8_t>& last_obs() const { return last_obs_; }
  const std::vector<double>& last_reward() const { return last_reward_; }

  void Count(const BatchView& view, std::int64_t first, std::int32_t count,
             std::span<const Command> commands) override {
    last_obs_.assign(view.obs + first * view.obs_bytes, view.obs + (first + count) * view.obs_bytes);
    last_reward_.assign(view.reward + first, view.reward + first + count);
    const auto first_env_id = static_cast<std::uint32_t>(view.env_id[0]);
    if (updates_) return normalizer_.Count(view, first, count, commands, first_env_id);
    normalizer_.EndEpisodes(view, first, count, first_env_id);
  }
  void Scale(const BatchView& view, std::int64_t first, std::int32_t count) const override {
    normalizer_.Scale(view, first, count);
  }

 private:
  Normalizer normalizer_;
  const bool updates_;
  std::vector<std::uint8_t> last_obs_;
  std::vector<double> last_reward_;
};

}  // namespace rollouts
