// SPDX-License-Identifier: Apache-2.0
// Observations and rewards scaled by running statistics.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rollouts/core/batch_view.h"
#include "rollouts/core/spec.h"
#include "rollouts/core/step.h"
#include "rollouts/support/moments.h"
#include "rollouts/wrappers/wrappers.h"

namespace rollouts {

// Gymnasium's NormalizeObservation, NormalizeReward and ClipReward over rows of batches.
//
// While statistics are updated, a row depends on its whole batch: the receiver then calls Count and
// Scale. Frozen statistics are only read, by each thread for its own rows.
class Normalizer {
 public:
  Normalizer(const Wrappers& wrappers, const SpaceSpec& observation, std::int32_t num_envs);

  RunningMoments* observation() { return observation_ ? &*observation_ : nullptr; }
  RunningMoments* reward() { return reward_ ? &*reward_ : nullptr; }
  bool any() const { return observation_ || reward_; }

  // Notes the discounted return of an environment that was stepped.
  void AddReward(std::int32_t env, double reward, bool terminated);
  // The return that AddReward keeps of an environment; null where rewards are not normalised.
  const double* Kept(std::int32_t env) const { return reward_ ? &returns_[env] : nullptr; }
  void SetKept(std::int32_t env, double sum) { returns_[env] = sum; }
  // Forgets the returns of episodes that ended, where each episode has a return of its own.
  void EndEpisodes(const BatchView& view, std::int64_t first, std::int32_t count,
                   std::uint32_t first_env_id);

  // Counts rows [first, first + count) of a batch. A row whose command is a step adds its
  // environment's discounted return; a row that was only shown again adds nothing.
  void Count(const BatchView& view, std::int64_t first, std::int32_t count,
             std::span<const Command> commands, std::uint32_t first_env_id);

  // Scales and clips those rows, final observations too.
  void Scale(const BatchView& view, std::int64_t first, std::int32_t count) const;

  // To be called when statistics have changed.
  void Refresh();

 private:
  void CountObservations(const std::uint8_t* rows, std::int64_t count);
  void ScaleObservations(std::uint8_t* rows, std::int64_t count) const;
  template <typename T>
  void ScaleRows(std::uint8_t* rows, std::int64_t count) const;
  void ScaleRewards(double* rewards, std::int32_t count) const;
  void ScaleFinal(const BatchView& view, std::int64_t first, std::int32_t count) const;

  const SpaceSpec space_;
  const std::optional<NormalizeObservation> by_observation_;
  const std::optional<NormalizeReward> by_reward_;
  const std::optional<ClipReward> clip_;
  std::optional<RunningMoments> observation_;
  std::optional<RunningMoments> reward_;
  std::vector<double> deviation_;    // one for each element of an observation
  double reward_deviation_ = 1;
  std::vector<double> returns_;      // discounted, of each environment
  std::vector<std::uint8_t> packed_;  // the rows that count, packed where others lie between them
  std::vector<double> stepped_;       // discounted returns that count
};

}  // namespace rollouts
