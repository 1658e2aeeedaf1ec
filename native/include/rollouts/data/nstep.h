// SPDX-License-Identifier: Apache-2.0
// n-step returns: Sutton and Barto 2018, equation 7.1.
#pragma once

#include "rollouts/data/fragment.h"

namespace rollouts {

// target[t] = r_t + gamma r_{t+1} + ... + gamma^n V(x_{t+n}), shorter where the episode or the
// fragment ends before. Takes T * min(n, T) steps per column.
template <typename Float>
ROLLOUTS_INLINE void Nstep(const Fragment<Float>& in, double gamma, std::int64_t n,
                           const Returns& out) {
  for (std::int64_t first = 0; first < in.envs; first += kColumnBlock) {
    const std::int64_t count = NumColumns(in.envs - first);
    double sum[kColumnBlock];
    for (std::int64_t t = 0; t < in.steps; ++t) {
      // Horner's scheme, from the value after the last of the n steps back to row t
      const std::int64_t end = n < in.steps - t ? t + n : in.steps;
      const Float* after = (end < in.steps ? in.value + end * in.row : in.last_value) + first;
      for (std::int64_t b = 0; b < count; ++b) sum[b] = after[b];
      for (std::int64_t k = end - 1; k >= t; --k) {
        const std::int64_t row = k * in.row + first;
        ROLLOUTS_IVDEP
        for (std::int64_t b = 0; b < count; ++b) {
          const double next = in.Ended(row + b) ? in.EndValue(row + b) : sum[b];
          sum[b] = in.reward[row + b] + gamma * next;
        }
      }
      const std::int64_t row = t * in.row + first;
      for (std::int64_t b = 0; b < count; ++b) {
        out.target[row + b] = static_cast<float>(sum[b]);
        out.advantage[row + b] = static_cast<float>(sum[b] - in.value[row + b]);
      }
    }
  }
}

}  // namespace rollouts
