// SPDX-License-Identifier: Apache-2.0
// Optimisers' formulas, those of torch.optim, as loops over parameters, compiled once for each
// instruction set; the including file has chosen one.
#pragma once

#include "rollouts/policy/optimizers.h"
#include "rollouts/policy/packing_loops.h"

namespace rollouts::policy {
inline namespace ROLLOUTS_POLICY_TARGET {
namespace {

Floats AdamStep(const StepRule& rule, Floats weight, Floats gradient, Floats& mean,
                Floats& square) {
  if (rule.kind == OptimizerKind::kAdamW) {
    weight = weight * (1.0f - rule.lr * rule.weight_decay);
  } else {
    gradient = Fma(weight, Splat(rule.weight_decay), gradient);
  }
  // torch's lerp: mean + (gradient - mean) (1 - beta)
  mean = Fma(gradient - mean, Splat(1.0f - rule.beta1), mean);
  square = Fma(gradient * gradient, Splat(1.0f - rule.beta2), square * rule.beta2);
  const Floats root = Fma(Sqrt(square), Splat(rule.root_scale), Splat(rule.eps));
  return weight - mean / root * rule.step_size;
}

Floats RmspropStep(const StepRule& rule, Floats weight, Floats gradient, Floats&, Floats& square) {
  gradient = Fma(weight, Splat(rule.weight_decay), gradient);
  square = Fma(gradient * gradient, Splat(1.0f - rule.beta2), square * rule.beta2);
  const Floats root = rule.kind == OptimizerKind::kRmspropTf ? Sqrt(square + rule.eps)
                                                             : Sqrt(square) + rule.eps;
  return weight - gradient / root * rule.lr;
}

// `momentum` is the buffer of the momentum.
Floats SgdStep(const StepRule& rule, Floats weight, Floats gradient, Floats&, Floats& momentum) {
  gradient = Fma(weight, Splat(rule.weight_decay), gradient);
  momentum = Fma(momentum, Splat(rule.beta2), gradient);
  const Floats ahead = Fma(momentum, Splat(rule.beta2), gradient);
  return weight - (rule.kind == OptimizerKind::kNesterov ? ahead : momentum) * rule.lr;
}

// Applies the formula of one kind to all weights, and tells if all are finite. The rule is a copy,
// which cannot overlap with an array.
template <Floats (*kStep)(const StepRule&, Floats, Floats, Floats&, Floats&)>
bool StepEach(const StepRule rule, float scale, std::int64_t size, float* weights,
              const float* gradients, float* means, float* squares) {
  std::int64_t i = 0;
  // stays 0 unless a weight is not finite
  Floats sum = Splat(0.0f);
  for (; i + kLanes <= size; i += kLanes) {
    Floats mean = means ? Load(means + i) : Splat(0.0f), square = Load(squares + i);
    const Floats weight =
        kStep(rule, Load(weights + i), Load(gradients + i) * scale, mean, square);
    Store(weights + i, weight);
    sum += weight * 0.0f;
    if (means) Store(means + i, mean);
    Store(squares + i, square);
  }
  for (; i < size; ++i) {
    // only one lane counts
    Floats mean = Splat(means ? means[i] : 0.0f), square = Splat(squares[i]);
    weights[i] = kStep(rule, Splat(weights[i]), Splat(gradients[i]) * scale, mean, square)[0];
    if (means) means[i] = mean[0];
    squares[i] = square[0];
    sum += weights[i] * 0.0f;
  }
  return AllZero(sum);
}

// Implements Kernels::step.
bool StepWeights(const StepRule& rule, float scale, std::int64_t size, float* weights,
                 const float* gradients, float* means, float* squares) {
  switch (rule.kind) {
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return StepEach<AdamStep>(rule, scale, size, weights, gradients, means, squares);
    case OptimizerKind::kSgd:
    case OptimizerKind::kNesterov:
      return StepEach<SgdStep>(rule, scale, size, weights, gradients, means, squares);
    case OptimizerKind::kRmsprop:
    case OptimizerKind::kRmspropTf:
      return StepEach<RmspropStep>(rule, scale, size, weights, gradients, means, squares);
  }
  return false;
}

// Implements Kernels::move.
void MoveWeights(std::int64_t size, const float* from, float share, float* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    Store(to + i, Fma(Load(from + i), Splat(share), Load(to + i) * (1.0f - share)));
  }
  for (; i < size; ++i) {
    // only one lane counts
    to[i] = Fma(Splat(from[i]), Splat(share), Splat(to[i]) * (1.0f - share))[0];
  }
}

}  // namespace
}  // namespace ROLLOUTS_POLICY_TARGET
}  // namespace rollouts::policy
