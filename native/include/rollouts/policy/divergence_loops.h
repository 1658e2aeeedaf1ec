// SPDX-License-Identifier: Apache-2.0
// The KL divergence from the distribution that an action was drawn from to the present one, and its
// gradient, as loops over columns; the including file has chosen an instruction set.
#pragma once

#include <limits>

#include "rollouts/policy/backward_loops.h"
#include "rollouts/policy/head_loops.h"
#include "rollouts/policy/losses.h"

namespace rollouts::policy {
inline namespace ROLLOUTS_POLICY_TARGET {
namespace {

// The logarithm of the sum of e^logit.
Floats LogSumOf(const float* logits, int size) {
  Floats most = Load(logits);
  for (int a = 1; a < size; ++a) {
    const Floats logit = Load(logits + a * kColumns);
    most = Select(logit > most, logit, most);
  }
  Floats sum = Splat(0.0f);
  for (int a = 0; a < size; ++a) sum += Exp(Load(logits + a * kColumns) - most);
  return most + Log(sum);
}

// The divergence of one element of a discrete action. Adds `weight` times the gradient to that of
// its logits.
Floats DivergeElement(const float* before, const float* now, int size, Floats weight, float* to) {
  const Floats sum_before = LogSumOf(before, size), sum_now = LogSumOf(now, size);
  Floats divergence = Splat(0.0f);
  for (int a = 0; a < size; ++a) {
    const Floats was = Load(before + a * kColumns) - sum_before;
    const Floats is = Load(now + a * kColumns) - sum_now;
    const Floats share = Exp(was);
    const Floats chance = Exp(is);
    // as in torch: infinite where an action that could be drawn cannot be drawn any more
    const Floats ratio = Select(chance == 0.0f, Splat(std::numeric_limits<float>::infinity()), was - is);
    // an action that could not be drawn does not count, whatever its present logit is
    divergence += Select(share > 0.0f, share * ratio, Splat(0.0f));
    Give(to + a * kColumns, weight * (chance - share), true);
  }
  return divergence;
}

// The divergence of one number of a Gaussian action.
Floats DivergeNumber(Floats mean_before, Floats log_std_before, Floats mean, Floats log_std,
                     Floats weight, float* to_mean, float* to_log_std) {
  const Floats scale = Exp(-log_std);
  const Floats off = (mean - mean_before) * scale;
  const Floats narrowed = log_std_before - log_std;
  const Floats spread = Exp(2.0f * narrowed) + off * off;
  Give(to_mean, weight * off * scale, true);
  Give(to_log_std, weight * (1.0f - spread), true);
  return Fma(Splat(0.5f), spread - 1.0f, -narrowed);
}

// The divergence of all elements of an action. `before` holds the head's inputs at the draw, the
// second input after the first.
Floats Diverge(const Head& head, const HeadInputs& in, const float* before, int v, Floats weight,
               const HeadGradients& to) {
  Floats divergence = Splat(0.0f);
  if (head.kind == HeadKind::kGaussian) {
    for (int d = 0; d < in.size; ++d) {
      const int second = (in.second_size == 1 ? 0 : d * kColumns) + v;
      divergence += DivergeNumber(Load(before + d * kColumns), Load(before + (in.size + d) * kColumns),
                                  Load(in.first + d * kColumns + v), Load(in.second + second), weight,
                                  to.first + d * kColumns + v, to.second + second);
    }
    return divergence;
  }
  int row = 0;
  const int elements = head.kind == HeadKind::kCategorical ? 1 : in.num_elements;
  for (int e = 0; e < elements; ++e) {
    const int size = head.kind == HeadKind::kCategorical ? in.size : in.nvec[e];
    divergence += DivergeElement(before + row * kColumns, in.first + row * kColumns + v, size, weight,
                                 to.first + row * kColumns + v);
    row += size;
  }
  return divergence;
}

}  // namespace
}  // namespace ROLLOUTS_POLICY_TARGET
}  // namespace rollouts::policy
