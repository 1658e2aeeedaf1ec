// SPDX-License-Identifier: Apache-2.0
// Generalised advantage estimation: Schulman et al. 2016, equation 16.
#pragma once

#include "rollouts/data/fragment.h"

namespace rollouts {

// The advantage is the one-step TD error with `lambda` 0, and the discounted return minus the
// baseline with 1.
template <typename Float>
ROLLOUTS_INLINE void Gae(const Fragment<Float>& in, double gamma, double lambda,
                         const Returns& out) {
  const double decay = gamma * lambda;
  for (std::int64_t first = 0; first < in.envs; first += kColumnBlock) {
    const std::int64_t count = NumColumns(in.envs - first);
    double next_value[kColumnBlock];
    double advantage[kColumnBlock] = {};
    for (std::int64_t b = 0; b < count; ++b) next_value[b] = in.last_value[first + b];

    for (std::int64_t t = in.steps - 1; t >= 0; --t) {
      const std::int64_t row = t * in.row + first;
      ROLLOUTS_IVDEP
      for (std::int64_t b = 0; b < count; ++b) {
        const std::int64_t i = row + b;
        const bool ended = in.Ended(i);
        const double value = in.value[i];
        const double next = ended ? in.EndValue(i) : next_value[b];
        const double later = ended ? 0.0 : decay * advantage[b];
        advantage[b] = in.reward[i] + gamma * next - value + later;
        next_value[b] = value;
        out.advantage[i] = static_cast<float>(advantage[b]);
        out.target[i] = static_cast<float>(advantage[b] + value);
      }
    }
  }
}

}  // namespace rollouts
