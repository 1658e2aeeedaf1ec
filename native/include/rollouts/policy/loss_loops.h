// SPDX-License-Identifier: Apache-2.0
// Losses as loops over columns, compiled once for each instruction set; the including file has
// chosen one.
#pragma once

#include "rollouts/policy/divergence_loops.h"
#include "rollouts/policy/head_loops.h"
#include "rollouts/policy/losses.h"

namespace rollouts::policy {
inline namespace ROLLOUTS_POLICY_TARGET {
namespace {

// Log-density and entropy of a batch's actions, for a vector of columns.
struct Density {
  Floats log_prob;
  Floats entropy;
};

// Adds the density of one element of a discrete action. `shares` (size, kColumns) are kept for the
// gradient.
void AddElement(const float* logits, const std::int32_t* index, int size, float* shares,
                Density& density) {
  const Softmax softmax = SoftmaxOf(logits, size, shares);
  const Floats log_sum = Log(softmax.sum);
  const Ints action = LoadInts(reinterpret_cast<const std::uint32_t*>(index));
  Floats chosen = Splat(0.0f);
  for (int a = 0; a < size; ++a) {
    chosen = Select(action == a, Load(logits + a * kColumns) - softmax.most, chosen);
  }
  density.log_prob += chosen - log_sum;
  density.entropy += EntropyOf(logits, size, shares, softmax, log_sum);
  // probabilities from here on
  const Floats part = 1.0f / softmax.sum;
  for (int a = 0; a < size; ++a) Store(shares + a * kColumns, Load(shares + a * kColumns) * part);
}

// Adds the gradient of one element's logits, from the loss's gradients of log-density and entropy.
void GiveElement(const float* logits, const std::int32_t* index, int size, const float* shares,
                 const Density& given, float* to) {
  const Ints action = LoadInts(reinterpret_cast<const std::uint32_t*>(index));
  // this element's largest logit, relative to which log p is computed
  Floats most = Load(logits);
  for (int a = 1; a < size; ++a) {
    const Floats logit = Load(logits + a * kColumns);
    most = Select(logit > most, logit, most);
  }
  Floats weighted = Splat(0.0f);
  for (int a = 0; a < size; ++a) {
    const Floats share = Load(shares + a * kColumns);
    const Floats off = Load(logits + a * kColumns) - most;
    weighted = Fma(share, Select(share > 0.0f, off, Splat(0.0f)), weighted);
  }
  for (int a = 0; a < size; ++a) {
    const Floats share = Load(shares + a * kColumns);
    const Floats off = Load(logits + a * kColumns) - most;
    // dH/dl = -p (log p + H) = -p (off - sum of p off)
    const Floats spread = share * Select(share > 0.0f, off - weighted, Splat(0.0f));
    const Floats one = Select(action == a, Splat(1.0f), Splat(0.0f));
    Give(to + a * kColumns, Fma(given.log_prob, one - share, -given.entropy * spread), true);
  }
}

constexpr float kLogGaussianPeak = kHalfLogTwoPi;

// Adds one number of a Gaussian action.
void AddNumber(Floats mean, Floats log_std, Floats action, Density& density) {
  const Floats off = (action - mean) * Exp(-log_std);
  density.log_prob += Fma(off * off, Splat(-0.5f), -log_std) - kLogGaussianPeak;
  density.entropy += log_std + (0.5f + kLogGaussianPeak);
}

void GiveNumber(Floats mean, Floats log_std, Floats action, const Density& given, float* to_mean,
                float* to_log_std) {
  const Floats scale = Exp(-log_std);
  const Floats off = (action - mean) * scale;
  Give(to_mean, given.log_prob * off * scale, true);
  Give(to_log_std, Fma(given.log_prob, Fma(off, off, Splat(-1.0f)), given.entropy), true);
}

Density DensityOf(const Head& head, const HeadInputs& in, const ActedColumns& acted, int v,
                  float* room) {
  Density density{Splat(0.0f), Splat(0.0f)};
  if (head.kind == HeadKind::kGaussian) {
    density.log_prob -= Load(acted.log_slope + v);
    for (int d = 0; d < in.size; ++d) {
      AddNumber(Load(in.first + d * kColumns + v),
                Load(in.second + (in.second_size == 1 ? 0 : d * kColumns) + v),
                Load(acted.box + d * kColumns + v), density);
    }
    return density;
  }
  int row = 0;
  const int elements = head.kind == HeadKind::kCategorical ? 1 : in.num_elements;
  for (int e = 0; e < elements; ++e) {
    const int size = head.kind == HeadKind::kCategorical ? in.size : in.nvec[e];
    AddElement(in.first + row * kColumns + v, acted.index + e * kColumns + v, size,
               room + row * kColumns + v, density);
    row += size;
  }
  return density;
}

void GiveDensity(const Head& head, const HeadInputs& in, const ActedColumns& acted, int v,
                 const float* room, const Density& given, const HeadGradients& to) {
  if (head.kind == HeadKind::kGaussian) {
    for (int d = 0; d < in.size; ++d) {
      const int second = (in.second_size == 1 ? 0 : d * kColumns) + v;
      GiveNumber(Load(in.first + d * kColumns + v), Load(in.second + second),
                 Load(acted.box + d * kColumns + v), given, to.first + d * kColumns + v,
                 to.second + second);
    }
    return;
  }
  int row = 0;
  const int elements = head.kind == HeadKind::kCategorical ? 1 : in.num_elements;
  for (int e = 0; e < elements; ++e) {
    const int size = head.kind == HeadKind::kCategorical ? in.size : in.nvec[e];
    GiveElement(in.first + row * kColumns + v, acted.index + e * kColumns + v, size,
                room + row * kColumns + v, given, to.first + row * kColumns + v);
    row += size;
  }
}

// The squared error of a value, or its tangent far from 0.
Floats ErrorLoss(const PpoRule& rule, Floats error, Floats& slope) {
  const Floats square = error * error;
  slope = 2.0f * error;
  if (!rule.is_huber) return square;
  const Floats limit = Splat(rule.huber);
  const Floats near = AtMost(AtLeast(error, -limit), limit);
  slope = 2.0f * near;
  return near * (2.0f * error - near);
}

// The value's loss, and its gradient.
Floats ValueLoss(const PpoRule& rule, const ActedColumns& acted, const float* value, int v,
                 Floats weight, Floats& plain, float* to) {
  const Floats now = Load(value + v), target = Load(acted.target + v);
  const Floats error = now - target;
  plain = error * error;
  Floats slope = Splat(0.0f);
  Floats loss = ErrorLoss(rule, error, slope);
  if (rule.limits_value) {
    const Floats old = Load(acted.value + v);
    const Floats moved = now - old;
    const Floats limit = Splat(rule.value_clip);
    // as in torch.clamp: if `limit` is negative, it is below the lower bound -limit, and the result
    // is `limit` everywhere
    const Floats bounded = old + AtMost(AtLeast(moved, -limit), limit) - target;
    Floats bounded_slope = Splat(0.0f);
    const Floats other = ErrorLoss(rule, bounded, bounded_slope);
    const Mask inside = (moved >= -limit) & (moved <= limit);
    const Floats other_slope = Select(inside, bounded_slope, Splat(0.0f));
    const Mask takes = rule.value_worse ? other > loss : Mask{} == 0;
    const Mask equal = rule.value_worse ? other == loss : Mask{};
    slope = Select(takes, other_slope, Select(equal, 0.5f * (slope + other_slope), slope));
    loss = Select(takes, other, loss);
  }
  if (rule.caps_error) {
    const Floats cap = Splat(rule.error_cap);
    slope = Select(loss > cap, Splat(0.0f), slope);
    loss = Select(loss > cap, cap, loss);
  }
  Give(to + v, weight * rule.value_weight * slope, true);
  return loss;
}

// Implements Kernels::density.
void DensityOfActions(const Head& head, const HeadInputs& in, const ActedColumns& acted, float* room,
                      float* log_prob, float* entropy) {
  for (int v = 0; v < kColumns; v += kLanes) {
    const Density density = DensityOf(head, in, acted, v, room);
    Store(log_prob + v, density.log_prob);
    Store(entropy + v, density.entropy);
  }
}

// Implements Kernels::ppo.
void Ppo(const Head& head, const HeadInputs& in, const float* value, const ActedColumns& acted,
         const PpoRule& rule, float* room, const HeadGradients& to, float* sums) {
  for (int v = 0; v < kColumns; v += kLanes) {
    const Floats weight = Load(acted.weight + v);
    const Density density = DensityOf(head, in, acted, v, room);
    // a row that does not count may have any number
    const Floats apart = density.log_prob - Load(acted.log_prob + v);
    const Floats moved = Select(weight > 0.0f, apart, Splat(0.0f));
    const Floats ratio = Exp(moved);
    const Floats advantage = Load(acted.advantage + v);
    const Floats low = Splat(rule.low), high = Splat(rule.high);
    const Floats plain = ratio * advantage;
    const Floats bounded = AtMost(AtLeast(ratio, low), high) * advantage;
    const Mask inside = (ratio >= low) & (ratio <= high);
    // where both are equal, the gradient is that of either, and 0 beyond the limit
    const Mask counts = inside | (plain < bounded);
    const Floats limited = Select(plain < bounded, plain, bounded);
    const Floats gain = rule.is_plain ? advantage * density.log_prob : limited;
    const Floats slope = rule.is_plain ? -advantage : Select(counts, -plain, Splat(0.0f));
    const Density given{slope * weight,
                        Splat(-rule.entropy_weight) * weight};
    GiveDensity(head, in, acted, v, room, given, to);
    Floats error = Splat(0.0f);
    const Floats value_loss =
        value ? ValueLoss(rule, acted, value, v, weight, error, to.value) : Splat(0.0f);
    Floats kl = Splat(0.0f);
    if (rule.has_kl) {
      const Floats found = Diverge(head, in, acted.inputs + v, v, weight * rule.kl_weight, to);
      // the divergence may be infinite, and a row that does not count has none
      kl = Select(weight > 0.0f, found, kl);
    }
    const Floats found[kNumLossSums] = {-gain, value_loss, density.entropy, (ratio - 1.0f) - moved,
                                        Select(inside, Splat(0.0f), Splat(1.0f)), error, kl};
    for (int i = 0; i < kNumLossSums; ++i) {
      float* sum = sums + i * kColumns + v;
      Store(sum, Fma(found[i], weight, Load(sum)));
    }
  }
}

}  // namespace
}  // namespace ROLLOUTS_POLICY_TARGET
}  // namespace rollouts::policy
