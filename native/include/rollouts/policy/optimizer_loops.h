// SPDX-License-Identifier: Apache-2.0
// Optimisers' formulas, those of torch.optim, as loops over parameters, compiled once for each
// instruction set; the including file has chosen one.
#pragma once

#include "rollouts/policy/optimizers.h"
#include "rollouts/policy/simd.h"

namespace rollouts::policy {
inline namespace ROLLOUTS_POLICY_TARGET {
namespace {

Floats AdamStep(const AdamRule& rule, Floats weight, Floats gradient, Floats& mean,
                Floats& square) {
  if (rule.decays_apart) {
    weight = weight * (1.0f - rule.lr * rule.weight_decay);
  } else {
    gradient = Fma(weight, Splat(rule.weight_decay), gradient);
  }
  // torch's lerp: mean + (gradient - mean) (1 - beta)
  mean = Fma(gradient - mean, Splat(1.0f - rule.beta1), mean);
  square = Fma(gradient * gradient, Splat(1.0f - rule.beta2), square * rule.beta2);
  const Floats root = Sqrt(square) / rule.root_correction + rule.eps;
  return weight - mean / root * rule.step_size;
}

// As Kernels::adam.
void Adam(const AdamRule& rule, float scale, std::int64_t size, float* weights,
          const float* gradients, float* means, float* squares) {
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    Floats mean = Load(means + i), square = Load(squares + i);
    Store(weights + i,
          AdamStep(rule, Load(weights + i), Load(gradients + i) * scale, mean, square));
    Store(means + i, mean);
    Store(squares + i, square);
  }
  for (; i < size; ++i) {
    // one lane counts
    Floats mean = Splat(means[i]), square = Splat(squares[i]);
    weights[i] = AdamStep(rule, Splat(weights[i]), Splat(gradients[i]) * scale, mean, square)[0];
    means[i] = mean[0];
    squares[i] = square[0];
  }
}

}  // namespace
}  // namespace ROLLOUTS_POLICY_TARGET
}  // namespace rollouts::policy
