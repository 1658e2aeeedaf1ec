// SPDX-License-Identifier: Apache-2.0
// V-trace: Espeholt et al. 2018, "IMPALA", equation 1 and remark 2.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "rollouts/data/fragment.h"

namespace rollouts {

struct VtraceOptions {
  double gamma;
  double lambda;   // scales c, remark 2
  double rho_bar;  // bounds the ratio in the temporal difference: where values converge to
  double c_bar;    // bounds the ratio in the trace: how fast they converge
};

// Both log-probabilities (T, B) are those of the actions that were taken: under the policy that
// took them, and under the one that learns, whose values `in.value` are.
//   target[t]    = V(x_t) + delta_t + gamma c_t (target[t + 1] - V(x_{t + 1}))
//   advantage[t] = rho_t (r_t + gamma target[t + 1] - V(x_t))
template <typename Float>
[[gnu::always_inline]] inline void Vtrace(const Fragment<Float>& in,
                                          const Float* behaviour_log_prob,
                                          const Float* target_log_prob,
                                          const VtraceOptions& options, const Returns& out) {
  const double gamma = options.gamma;
  for (std::int64_t first = 0; first < in.envs; first += kColumnBlock) {
    const std::int64_t count = std::min(kColumnBlock, in.envs - first);
    double next_value[kColumnBlock];
    double next_target[kColumnBlock];
    double ratio[kColumnBlock];
    for (std::int64_t b = 0; b < count; ++b) {
      next_value[b] = next_target[b] = in.last_value[first + b];
    }

    for (std::int64_t t = in.steps - 1; t >= 0; --t) {
      const std::int64_t row = t * in.row + first;
      // in a separate loop: exp is a call, the other loops are vectorised
      for (std::int64_t b = 0; b < count; ++b) {
        ratio[b] = std::exp(static_cast<double>(target_log_prob[row + b]) -
                            static_cast<double>(behaviour_log_prob[row + b]));
      }
#pragma GCC ivdep
      for (std::int64_t b = 0; b < count; ++b) {
        const std::int64_t i = row + b;
        const bool ended = in.Ended(i);
        const double end_value = in.EndValue(i);
        const double value = in.value[i];
        const double reward = in.reward[i];
        // with std::min's arguments in this order NaN stays NaN, and shows a broken log-probability
        const double rho = std::min(ratio[b], options.rho_bar);
        const double trace = gamma * options.lambda * std::min(ratio[b], options.c_bar);
        const double next = ended ? end_value : next_value[b];
        const double next_corrected = ended ? end_value : next_target[b];
        const double delta = rho * (reward + gamma * next - value);
        // 0 where the episode ended
        const double correction = delta + trace * (next_corrected - next);
        const double target = value + correction;
        out.advantage[i] = static_cast<float>(rho * (reward + gamma * next_corrected - value));
        out.target[i] = static_cast<float>(target);
        next_value[b] = value;
        next_target[b] = target;
      }
    }
  }
}

}  // namespace rollouts
