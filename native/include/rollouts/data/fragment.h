// SPDX-License-Identifier: Apache-2.0
// T steps of B environments, as the return estimators read them.
#pragma once

#include "rollouts/core/platform.h"

namespace rollouts {

// Estimators process the columns in blocks of this many: their running sums stay in registers and
// the first-level cache, and nothing is allocated. A GPU's thread has one column.
inline constexpr std::int64_t kColumnBlock = kInKernel ? 1 : 64;
// The number of columns in the next block, where `left` columns are left.
ROLLOUTS_INLINE constexpr std::int64_t NumColumns(std::int64_t left) {
  return left < kColumnBlock ? left : kColumnBlock;
}

// Borrowed, C-contiguous, time-major arrays. Where an episode ended at row t, row t + 1 (or
// last_value) belongs to the next episode and is no part of its return.
template <typename Float>
struct Fragment {
  std::int64_t steps;                // T
  std::int64_t envs;                 // B
  const Float* reward;               // (T, B)
  const Float* value;                // (T, B)   V(obs[t])
  const std::uint8_t* terminated;    // (T, B)   0 or 1
  const std::uint8_t* truncated;     // (T, B)   0 or 1
  const Float* bootstrap_value;      // (T, B)   V(final_obs), read where truncated & ~terminated
  const Float* last_value;           // (B,)     V of the observation after row T - 1
  std::int64_t row = envs;           // from one row to the next; above B for a part of the columns

  ROLLOUTS_INLINE bool Ended(std::int64_t i) const {
    return (terminated[i] | truncated[i]) != 0;
  }
  // The value after the last step of an episode; needs Ended(i).
  ROLLOUTS_INLINE double EndValue(std::int64_t i) const {
    return terminated[i] != 0 ? 0.0 : static_cast<double>(bootstrap_value[i]);
  }
};

// Two results of an estimator, with rows like those of its fragment.
struct Returns {
  float* advantage;  // (T, B)
  float* target;     // (T, B)   the value function's regression target
};

}  // namespace rollouts
