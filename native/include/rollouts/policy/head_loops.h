// SPDX-License-Identifier: Apache-2.0
// Heads as loops over columns, compiled once for each instruction set; the including file
// has chosen one.
#pragma once

#include "rollouts/core/rng.h"
#include "rollouts/policy/elementary.h"
#include "rollouts/policy/heads.h"

namespace rollouts::policy {
inline namespace ROLLOUTS_POLICY_TARGET {
namespace {

constexpr float kHalfLogTwoPi = 0.918938533204672742f;

// Four random words for each column, as Philox4x32 gives them: a pure function of seed and keys.
#if defined(ROLLOUTS_KERNEL)
void DrawWords(const NoiseKeys& keys, std::uint64_t seed, std::uint32_t block,
               std::uint32_t (*words)[kSpan]) {
  const PhiloxBlock drawn =
      Philox4x32(PhiloxBlock{{block, keys.env_id[0], keys.episode[0], keys.step[0]}},
                 static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  for (int w = 0; w < 4; ++w) words[w][0] = drawn.word[w];
}
#else
void DrawWords(const NoiseKeys& keys, std::uint64_t seed, std::uint32_t block,
               std::uint32_t (*words)[kSpan]) {
  for (int i = 0; i < kSpan; i += kLongs) {
    // words are the low halves; a product is two words, so that nothing moves between lanes
    Longs c0 = Longs{} + block, c1 = LoadLongs(keys.env_id + i);
    Longs c2 = LoadLongs(keys.episode + i), c3 = LoadLongs(keys.step + i);
    auto key0 = static_cast<std::uint32_t>(seed);
    auto key1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const Longs p0 = LowProduct(c0, Longs{} + 0xD2511F53u);
      const Longs p1 = LowProduct(c2, Longs{} + 0xCD9E8D57u);
      c0 = (p1 >> 32) ^ c1 ^ (Longs{} + key0);
      c1 = p1;
      c2 = (p0 >> 32) ^ c3 ^ (Longs{} + key1);
      c3 = p0;
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    StoreLow(words[0] + i, c0);
    StoreLow(words[1] + i, c1);
    StoreLow(words[2] + i, c2);
    StoreLow(words[3] + i, c3);
  }
}
#endif

// Numbers in [0, 1), made of the highest 24 bits of a word.
Floats UniformOfWords(const std::uint32_t* words) {
  return ToFloats((LoadInts(words) >> 8) & 0xFFFFFF) * (1.0f / 16777216.0f);
}

// Two normally distributed numbers of two words (Box and Muller 1958).
void DrawNormals(const std::uint32_t (*words)[kSpan], float* first, float* second) {
  for (int v = 0; v < kSpan; v += kLanes) {
    // 1 - u lies in (0, 1]
    const Floats radius = Sqrt(-2.0f * Log(1.0f - UniformOfWords(words[0] + v)));
    const SineCosine turn = SineCosineOfTurns(UniformOfWords(words[1] + v));
    Store(first + v, radius * turn.cosine);
    if (second) Store(second + v, radius * turn.sine);
  }
}

// The four numbers of one block of noise, for each column; only two unless `all`.
void DrawBlock(const NoiseKeys& keys, std::uint64_t seed, std::uint32_t block, bool all,
               float (*normal)[kSpan]) {
  std::uint32_t words[4][kSpan];
  DrawWords(keys, seed, block, words);
  DrawNormals(words, normal[0], normal[1]);
  if (all) DrawNormals(words + 2, normal[2], normal[3]);
}

// The noise that remains from earlier steps, for each column: x_t = kept * (x_(t-1) + noise_(t-1)),
// and 0 in an episode's first step. Nothing is stored: the noise of earlier steps is drawn again,
// back to where it no longer changes a float.
void DrawPast(const NoiseKeys& keys, const Head& head, std::uint32_t block, bool all,
              float (*past)[kSpan]) {
  for (int n = 0; n < 4; ++n) {
    for (int i = 0; i < kSpan; ++i) past[n][i] = 0.0f;
  }
  const float kept = 1.0f - head.damping;
  std::uint32_t most = 0, steps = 0;
  for (float left = 1.0f; left > 0x1p-25f && most < 4096; left *= kept) ++most;
  for (int i = 0; i < kSpan; ++i) steps = keys.step[i] > steps ? keys.step[i] : steps;
  NoiseKeys then = keys;
  float normal[4][kSpan] = {}, begun[kSpan];
  for (std::uint32_t ago = most < steps ? most : steps; ago > 0; --ago) {
    for (int i = 0; i < kSpan; ++i) {
      then.step[i] = keys.step[i] - ago;
      begun[i] = keys.step[i] >= ago ? kept : 0.0f;
    }
    DrawBlock(then, head.seed, block, all, normal);
    for (int n = 0; n < (all ? 4 : 2); ++n) {
      for (int v = 0; v < kSpan; v += kLanes) {
        Store(past[n] + v, Load(begun + v) * (Load(past[n] + v) + Load(normal[n] + v)));
      }
    }
  }
}

// The softmax of a vector of columns. `shares` (size, kColumns) are e^(logit - most), computed
// once, because this costs more than all other work here.
struct Softmax {
  Floats most;
  Floats sum;  // the shares' sum
  Ints best;
};

Softmax SoftmaxOf(const float* logits, int size, float* shares) {
  Softmax found{Load(logits), Splat(0.0f), Ints{}};
  // the first of equal logits, as argmax does
  for (int a = 1; a < size; ++a) {
    const Floats logit = Load(logits + a * kColumns);
    const Mask better = logit > found.most;
    found.most = Select(better, logit, found.most);
    found.best = SelectInts(better, Ints{} + a, found.best);
  }
  // the largest logit is subtracted, so that no power overflows
  for (int a = 0; a < size; ++a) {
    const Floats share = Exp(Load(logits + a * kColumns) - found.most);
    Store(shares + a * kColumns, share);
    found.sum += share;
  }
  return found;
}

struct Picked {
  Ints action;
  Floats off;  // its logit minus the largest
};

// The first action at which the cumulative probability exceeds `uniform` times the sum. Where
// rounding leaves none, the last action with a probability.
Picked PickAction(const float* logits, int size, const float* shares, const Softmax& softmax,
                  Floats uniform) {
  const Floats target = uniform * softmax.sum;
  Picked picked{softmax.best, Splat(0.0f)};
  Mask found = Mask{};
  Floats cumulated = Splat(0.0f);
  for (int a = 0; a < size; ++a) {
    const Floats share = Load(shares + a * kColumns);
    cumulated += share;
    // an action without probability is never chosen, even for a target of 0
    const Mask takes = (found == 0) & (share > 0.0f);
    picked.action = SelectInts(takes, Ints{} + a, picked.action);
    picked.off = Select(takes, Load(logits + a * kColumns) - softmax.most, picked.off);
    found = found | (cumulated > target);
  }
  return picked;
}

// The entropy: log sum - sum of p l, where l is the logit minus the largest.
Floats EntropyOf(const float* logits, int size, const float* shares, const Softmax& softmax,
                 Floats log_sum) {
  Floats weighted = Splat(0.0f);  // sum of e^l l
  for (int a = 0; a < size; ++a) {
    const Floats off = Load(logits + a * kColumns) - softmax.most;
    // an action without probability adds nothing, because 0 * -infinity would be nan
    const Floats share = Load(shares + a * kColumns);
    weighted = Fma(share, Select(share > 0.0f, off, Splat(0.0f)), weighted);
  }
  return log_sum - weighted / softmax.sum;
}

// The rows of one element's logits.
struct Element {
  std::uint32_t number;  // for noise of its own
  int row;
  int size;
};

// Draws an element's action into `index`; adds to log-density and entropy.
void ActElement(const Head& head, const HeadInputs& in, const NoiseKeys& keys, Element element,
                std::int32_t* index, HeadOutputs& out) {
  std::uint32_t words[4][kSpan];
  if (!head.deterministic) DrawWords(keys, head.seed, element.number, words);
  const int size = element.size;
  for (int v = 0; v < kSpan; v += kLanes) {
    const float* logits = in.first + element.row * kColumns + v;
    float* shares = out.box + v;
    const Softmax softmax = SoftmaxOf(logits, size, shares);
    Picked picked{softmax.best, Splat(0.0f)};
    if (!head.deterministic) {
      picked = PickAction(logits, size, shares, softmax, UniformOfWords(words[0] + v));
    }
    const Floats log_sum = Log(softmax.sum);
    StoreInts(index + v, picked.action);
    Store(out.log_prob + v, Load(out.log_prob + v) + (picked.off - log_sum));
    if (out.with_entropy) {
      const Floats entropy = EntropyOf(logits, size, shares, softmax, log_sum);
      Store(out.entropy + v, Load(out.entropy + v) + entropy);
    }
  }
}

void ActCategorical(const Head& head, const HeadInputs& in, const NoiseKeys& keys,
                    HeadOutputs& out) {
  for (int i = 0; i < kSpan; ++i) out.log_prob[i] = out.entropy[i] = 0.0f;
  if (head.kind == HeadKind::kCategorical) {
    return ActElement(head, in, keys, {0, 0, in.size}, out.index, out);
  }
  int row = 0;
  for (int e = 0; e < in.num_elements; ++e) {
    const Element element{static_cast<std::uint32_t>(e), row, in.nvec[e]};
    ActElement(head, in, keys, element, out.elements + e * kColumns, out);
    row += in.nvec[e];
  }
}

void ActGaussian(const Head& head, const HeadInputs& in, const NoiseKeys& keys, HeadOutputs& out) {
  const bool squashed = head.kind == HeadKind::kTanhGaussian;
  // both are summed over the dimensions
  for (int i = 0; i < kSpan; ++i) out.log_prob[i] = out.entropy[i] = 0.0f;
  // these stay 0 where the head is deterministic, so that the sample is the mean
  float normal[4][kSpan] = {}, past[4][kSpan] = {};
  for (int d = 0; d < in.size; ++d) {
    // a block of four words gives four numbers
    if (d % 4 == 0 && !head.deterministic) {
      const auto block = static_cast<std::uint32_t>(d / 4);
      DrawBlock(keys, head.seed, block, d + 2 < in.size, normal);
      if (head.damping < 1.0f) DrawPast(keys, head, block, d + 2 < in.size, past);
    }
    for (int v = 0; v < kSpan; v += kLanes) {
      const Floats noise = Load(normal[d % 4] + v);
      // one for all dimensions, or one for each
      const Floats log_std = Load(in.second + (in.second_size == 1 ? 0 : d * kColumns) + v);
      const Floats moved = noise + Load(past[d % 4] + v);
      const Floats sample = Fma(Exp(log_std), moved, Load(in.first + d * kColumns + v));
      Floats density = Fma(noise * noise, Splat(-0.5f), -log_std) - kHalfLogTwoPi;
      if (squashed) {
        // minus the logarithm of tanh's slope, 2 (log 2 - x - softplus(-2 x))
        const Floats slope = (0.693147180559945309f - sample) - Softplus(-2.0f * sample);
        density = density - 2.0f * slope;
      }
      Floats action = squashed ? Tanh(sample) : sample;
      if (in.bounds) {
        const float* bounds = in.bounds + d;
        const auto bound = [&](int which) { return Splat(bounds[which * in.size]); };
        density = density - bound(4);
        // rounding may exceed the bounds
        action = AtMost(AtLeast(Fma(bound(3), action, bound(2)), bound(0)), bound(1));
      }
      Store(out.box + d * kColumns + v, action);
      Store(out.log_prob + v, Load(out.log_prob + v) + density);
      // the entropy of the Gaussian, even where it is squashed, because the entropy of a squashed
      // one has no closed form
      Store(out.entropy + v, Load(out.entropy + v) + (log_std + (0.5f + kHalfLogTwoPi)));
    }
  }
}

void ActEpsilonGreedy(const Head& head, const HeadInputs& in, const NoiseKeys& keys,
                      HeadOutputs& out) {
  std::uint32_t words[4][kSpan];
  DrawWords(keys, head.seed, 0, words);
  const float epsilon = head.deterministic ? 0.0f : head.epsilon;
  for (int v = 0; v < kSpan; v += kLanes) {
    Floats most = Load(in.first + v);
    Ints action = {};
    for (int a = 1; a < in.size; ++a) {
      const Floats value = Load(in.first + a * kColumns + v);
      action = SelectInts(value > most, Ints{} + a, action);
      most = Select(value > most, value, most);
    }
    // one word decides whether the action is random, another which one, independently
    const Ints any = ToInts(UniformOfWords(words[1] + v) * static_cast<float>(in.size));
    action = SelectInts(UniformOfWords(words[0] + v) < epsilon, any, action);
    StoreInts(out.index + v, action);
    Store(out.log_prob + v, Splat(0.0f));
    Store(out.entropy + v, Splat(0.0f));
  }
}

void Act(const Head& head, const HeadInputs& inputs, const NoiseKeys& keys, HeadOutputs& outputs) {
  switch (head.kind) {
    case HeadKind::kCategorical:
    case HeadKind::kMultiCategorical: return ActCategorical(head, inputs, keys, outputs);
    case HeadKind::kGaussian:
    case HeadKind::kTanhGaussian: return ActGaussian(head, inputs, keys, outputs);
    case HeadKind::kEpsilonGreedy: return ActEpsilonGreedy(head, inputs, keys, outputs);
  }
}

}  // namespace
}  // namespace ROLLOUTS_POLICY_TARGET
}  // namespace rollouts::policy
