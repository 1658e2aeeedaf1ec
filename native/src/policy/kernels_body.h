// SPDX-License-Identifier: Apache-2.0
// The kernels, compiled once for each instruction set; the including file has chosen one.
#pragma once

#include "rollouts/core/rng.h"
#include "rollouts/policy/elementary.h"
#include "rollouts/policy/kernels.h"

namespace rollouts::policy {
inline namespace ROLLOUTS_POLICY_TARGET {
namespace {

constexpr int kVectors = kColumns / kLanes;  // that hold one row
constexpr float kHalfLogTwoPi = 0.918938533204672742f;

// kOutputs rows of outputs of one block: biases, then inputs in their order, each a fused
// multiply-add. As many sums as registers allow, so that their latency is hidden.
template <int kOutputs, int kWide>
void SumOutputs(const float* weights, int stride, const float* bias, const float* x, int inputs,
                float* out, int left) {
  Floats sum[kOutputs][kWide];
  for (int o = 0; o < kOutputs; ++o) {
    for (int v = 0; v < kWide; ++v) sum[o][v] = Splat(bias ? bias[o] : 0.0f);
  }
  // each input is loaded once for the tile's outputs, each weight once for its columns
  for (int k = 0; k < inputs; ++k) {
    Floats column[kWide];
    for (int v = 0; v < kWide; ++v) column[v] = Load(x + k * kColumns + v * kLanes);
    for (int o = 0; o < kOutputs; ++o) {
      const Floats weight = Splat(weights[k * stride + o]);
      for (int v = 0; v < kWide; ++v) sum[o][v] = Fma(weight, column[v], sum[o][v]);
    }
  }
  // the last block of a layer may have outputs that are padding
  for (int o = 0; o < kOutputs && o < left; ++o) {
    for (int v = 0; v < kWide; ++v) Store(out + o * kColumns + v * kLanes, sum[o][v]);
  }
}

// A block of kBlock outputs, in tiles that fill the registers of this instruction set.
template <int kBlock>
void LinearBlockOf(const float* weights, const float* bias, const float* x, int inputs, float* out,
                   int left) {
  // 16 sums of AVX-512's 32 registers, else 4 outputs x 2 vectors: some are left for operands
  constexpr int kWide = kVectors < 2 ? kVectors : 2;
  constexpr int kMost = kLanes == 16 ? 16 : 4;
  constexpr int kTile = kBlock < kMost ? kBlock : kMost;
  for (int o = 0; o < kBlock && o < left; o += kTile) {
    for (int v = 0; v < kVectors; v += kWide) {
      SumOutputs<kTile, kWide>(weights + o, kBlock, bias ? bias + o : nullptr, x + v * kLanes,
                               inputs, out + o * kColumns + v * kLanes, left - o);
    }
  }
}

void Linear(const Instruction& step, const float* params, const float* x, float* out) {
  const float* weights = params + step.weight;
  const float* bias = step.bias < 0 ? nullptr : params + step.bias;
  // blocks are those of LinearBlock, by which the weights were packed
  for (int first = 0; first < step.size;) {
    const int left = step.size - first;
    const int block = left > 8 ? 16 : left > 4 ? 8 : 4;
    const float* block_bias = bias ? bias + first : nullptr;
    float* rows = out + first * kColumns;
    if (block == 16) {
      LinearBlockOf<16>(weights, block_bias, x, step.a_size, rows, left);
    } else if (block == 8) {
      LinearBlockOf<8>(weights, block_bias, x, step.a_size, rows, left);
    } else {
      LinearBlockOf<4>(weights, block_bias, x, step.a_size, rows, left);
    }
    weights += static_cast<std::int64_t>(block) * step.a_size;
    first += block;
  }
}

void LayerNorm(const Instruction& step, const float* params, const float* x, float* out) {
  const float* gain = step.weight < 0 ? nullptr : params + step.weight;
  const float* bias = step.bias < 0 ? nullptr : params + step.bias;
  for (int v = 0; v < kColumns; v += kLanes) {
    Floats sum = Splat(0.0f);
    for (int k = 0; k < step.size; ++k) sum += Load(x + k * kColumns + v);
    // as torch: squares of differences, divided by the size and not by one less
    const Floats mean = sum / static_cast<float>(step.size);
    Floats squares = Splat(0.0f);
    for (int k = 0; k < step.size; ++k) {
      const Floats off = Load(x + k * kColumns + v) - mean;
      squares = Fma(off, off, squares);
    }
    const Floats scale = 1.0f / Sqrt(squares / static_cast<float>(step.size) + step.number[0]);
    for (int k = 0; k < step.size; ++k) {
      Floats y = (Load(x + k * kColumns + v) - mean) * scale;
      if (gain) y = y * gain[k];
      if (bias) y = y + bias[k];
      Store(out + k * kColumns + v, y);
    }
  }
}

void Embedding(const Instruction& step, const float* params, const float* x, float* out) {
  const float* table = params + step.weight;
  const int entries = step.b_size;
  // a row of the table for each column, one by one: they lie apart
  for (int column = 0; column < kColumns; ++column) {
    const int index = static_cast<int>(x[column]);
    // columns without an environment hold 0; the space bounds the others
    const float* row =
        table + static_cast<std::int64_t>(index < 0 || index >= entries ? 0 : index) * step.size;
    for (int k = 0; k < step.size; ++k) out[k * kColumns + column] = row[k];
  }
}

// A function of every element of a register.
// Functions of one feature, of one and two numbers, and of two features. They are no lambdas: those
// do not take on the instruction set of the file.
Floats Same(Floats x) { return x; }
Floats Relu(Floats x) { return AtLeast(x, Splat(0.0f)); }
Floats Silu(Floats x) { return x * Sigmoid(x); }
Floats SquareOf(Floats x) { return x * x; }
// x times the share of a normal distribution below x; the factor is sqrt(1/2).
Floats Gelu(Floats x) { return 0.5f * x * (1.0f + Erf(x * 0.707106781186547524f)); }
// Its approximation (Hendrycks and Gimpel 2016); the first factor is sqrt(2 / pi).
Floats GeluTanh(Floats x) {
  const Floats inner = 0.797884560802865356f * Fma(x * x * x, Splat(0.044715f), x);
  return 0.5f * x * (1.0f + Tanh(inner));
}

Floats Elu(Floats x, float alpha, float) {
  return Select(x > 0.0f, x, alpha * Expm1OfNegative(x));
}
Floats LeakyRelu(Floats x, float slope, float) { return Select(x > 0.0f, x, slope * x); }
Floats Clamp(Floats x, float low, float high) {
  return AtMost(AtLeast(x, Splat(low)), Splat(high));
}
Floats Scale(Floats x, float factor, float offset) {
  return Fma(x, Splat(factor), Splat(offset));
}

Floats Add(Floats a, Floats b) { return a + b; }
Floats Subtract(Floats a, Floats b) { return a - b; }
Floats Multiply(Floats a, Floats b) { return a * b; }
Floats Divide(Floats a, Floats b) { return a / b; }
Floats Minimum(Floats a, Floats b) { return Select(a < b, a, b); }
Floats Maximum(Floats a, Floats b) { return Select(a > b, a, b); }

template <Floats (*kFunction)(Floats)>
void Map(const Instruction& step, const float* x, float* out) {
  for (int i = 0; i < step.size * kColumns; i += kLanes) Store(out + i, kFunction(Load(x + i)));
}

template <Floats (*kFunction)(Floats, float, float)>
void MapWith(const Instruction& step, const float* x, float* out) {
  for (int i = 0; i < step.size * kColumns; i += kLanes) {
    Store(out + i, kFunction(Load(x + i), step.number[0], step.number[1]));
  }
}

// One of the two may have a single feature, which meets each of the other's.
template <Floats (*kFunction)(Floats, Floats)>
void Combine(const Instruction& step, const float* rows, float* out) {
  const float* a = rows + step.a * kColumns;
  const float* b = rows + step.b * kColumns;
  const int a_step = step.a_size == 1 ? 0 : kColumns;
  const int b_step = step.b_size == 1 ? 0 : kColumns;
  for (int k = 0; k < step.size; ++k) {
    for (int v = 0; v < kColumns; v += kLanes) {
      Store(out + k * kColumns + v, kFunction(Load(a + k * a_step + v), Load(b + k * b_step + v)));
    }
  }
}

void Constant(const Instruction& step, const float* params, float* out) {
  for (int k = 0; k < step.size; ++k) {
    for (int v = 0; v < kColumns; v += kLanes) {
      Store(out + k * kColumns + v, Splat(params[step.weight + k]));
    }
  }
}

void RunOne(const Instruction& step, const float* params, float* rows) {
  const float* x = rows + step.a * kColumns;
  float* out = rows + step.out * kColumns;
  switch (step.kind) {
    case OpKind::kLinear: return Linear(step, params, x, out);
    case OpKind::kLayerNorm: return LayerNorm(step, params, x, out);
    case OpKind::kEmbedding: return Embedding(step, params, x, out);
    case OpKind::kConstant:
    case OpKind::kLiteral: return Constant(step, params, out);
    case OpKind::kCopy: return Map<Same>(step, x, out);
    case OpKind::kTanh: return Map<Tanh>(step, x, out);
    case OpKind::kRelu: return Map<Relu>(step, x, out);
    case OpKind::kSigmoid: return Map<Sigmoid>(step, x, out);
    case OpKind::kSilu: return Map<Silu>(step, x, out);
    case OpKind::kGelu: return Map<Gelu>(step, x, out);
    case OpKind::kGeluTanh: return Map<GeluTanh>(step, x, out);
    case OpKind::kSoftplus: return Map<Softplus>(step, x, out);
    case OpKind::kExp: return Map<Exp>(step, x, out);
    case OpKind::kLog: return Map<Log>(step, x, out);
    case OpKind::kSqrt: return Map<Sqrt>(step, x, out);
    case OpKind::kSquare: return Map<SquareOf>(step, x, out);
    case OpKind::kElu: return MapWith<Elu>(step, x, out);
    case OpKind::kLeakyRelu: return MapWith<LeakyRelu>(step, x, out);
    case OpKind::kClamp: return MapWith<Clamp>(step, x, out);
    case OpKind::kScale: return MapWith<Scale>(step, x, out);
    case OpKind::kAdd: return Combine<Add>(step, rows, out);
    case OpKind::kSub: return Combine<Subtract>(step, rows, out);
    case OpKind::kMul: return Combine<Multiply>(step, rows, out);
    case OpKind::kDiv: return Combine<Divide>(step, rows, out);
    case OpKind::kMinimum: return Combine<Minimum>(step, rows, out);
    case OpKind::kMaximum: return Combine<Maximum>(step, rows, out);
    case OpKind::kConcat:
    case OpKind::kSlice: return;  // laid out, never run
  }
}

void Forward(const Instruction* instructions, std::int32_t count, const float* params,
             float* rows) {
  for (std::int32_t i = 0; i < count; ++i) RunOne(instructions[i], params, rows);
}

// Four random words for each column: a pure function of seed and keys.
// Flattened: without calls the loop over columns becomes vector instructions.
__attribute__((flatten)) void DrawWords(const NoiseKeys& keys, std::uint64_t seed,
                                        std::uint32_t block, std::uint32_t (*words)[kColumns]) {
#pragma GCC ivdep
  for (int i = 0; i < kColumns; ++i) {
    const PhiloxBlock drawn =
        Philox4x32(PhiloxBlock{{block, keys.env_id[i], keys.episode[i], keys.step[i]}},
                   static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
    for (int w = 0; w < 4; ++w) words[w][i] = drawn.word[w];
  }
}

// In [0, 1), of the highest 24 bits of a word.
Floats UniformOfWords(const std::uint32_t* words) {
  Ints bits;
  __builtin_memcpy(&bits, words, sizeof(bits));
  return ToFloats((bits >> 8) & 0xFFFFFF) * (1.0f / 16777216.0f);
}

// Two normally distributed numbers out of two words each (Box and Muller 1958).
void DrawNormals(const std::uint32_t (*words)[kColumns], float* first, float* second) {
  for (int v = 0; v < kColumns; v += kLanes) {
    // 1 - u lies in (0, 1]
    const Floats radius = Sqrt(-2.0f * Log(1.0f - UniformOfWords(words[0] + v)));
    const SineCosine turn = SineCosineOfTurns(UniformOfWords(words[1] + v));
    Store(first + v, radius * turn.cosine);
    if (second) Store(second + v, radius * turn.sine);
  }
}

void StoreInts(std::int32_t* to, Ints x) { __builtin_memcpy(to, &x, sizeof(x)); }

// What a vector of columns says about its actions' probabilities.
struct Softmax {
  Floats most;
  Floats sum;  // of e^(logit - most)
  Ints best;
};

Softmax SoftmaxOf(const float* logits, int size) {
  Softmax found{Load(logits), Splat(0.0f), Ints{}};
  // the first of equal ones, as argmax has it
  for (int a = 1; a < size; ++a) {
    const Floats logit = Load(logits + a * kColumns);
    const Mask better = logit > found.most;
    found.most = Select(better, logit, found.most);
    found.best = SelectInts(better, Ints{} + a, found.best);
  }
  // less the largest, so that no power overflows
  for (int a = 0; a < size; ++a) found.sum += Exp(Load(logits + a * kColumns) - found.most);
  return found;
}

// The first action whose cumulated probability is beyond `target` of the sum; rounding at its end
// may leave none, then the last with a probability.
Ints PickAction(const float* logits, int size, const Softmax& softmax, Floats uniform) {
  const Floats target = uniform * softmax.sum;
  Ints action = softmax.best;
  Mask found = Mask{};
  Floats cumulated = Splat(0.0f);
  for (int a = 0; a < size; ++a) {
    const Floats share = Exp(Load(logits + a * kColumns) - softmax.most);
    cumulated += share;
    // an action without probability is never chosen, even for a target of 0
    action = SelectInts((found == 0) & (share > 0.0f), Ints{} + a, action);
    found = found | (cumulated > target);
  }
  return action;
}

void ActCategorical(const Head& head, const HeadInputs& in, const NoiseKeys& keys,
                    HeadOutputs& out) {
  std::uint32_t words[4][kColumns];
  if (!head.deterministic) DrawWords(keys, head.seed, 0, words);
  for (int v = 0; v < kColumns; v += kLanes) {
    const float* logits = in.first + v;
    const Softmax softmax = SoftmaxOf(logits, in.size);
    const Ints action = head.deterministic
                            ? softmax.best
                            : PickAction(logits, in.size, softmax, UniformOfWords(words[0] + v));
    // log p = l - log sum, and entropy = log sum - sum of p l, l less the largest
    const Floats log_sum = Log(softmax.sum);
    Floats log_prob = Splat(0.0f);
    Floats weighted = Splat(0.0f);  // sum of e^l l
    for (int a = 0; a < in.size; ++a) {
      const Floats off = Load(logits + a * kColumns) - softmax.most;
      log_prob = Select(action == Ints{} + a, off - log_sum, log_prob);
      // without probability nothing is added, where 0 * -infinity would be nan
      const Floats share = Exp(off);
      weighted = Fma(share, Select(share > 0.0f, off, Splat(0.0f)), weighted);
    }
    StoreInts(out.index + v, action);
    Store(out.log_prob + v, log_prob);
    Store(out.entropy + v, log_sum - weighted / softmax.sum);
  }
}

void ActGaussian(const Head& head, const HeadInputs& in, const NoiseKeys& keys, HeadOutputs& out) {
  const bool squashed = head.kind == HeadKind::kTanhGaussian;
  // both add up over the dimensions
  for (int i = 0; i < kColumns; ++i) out.log_prob[i] = out.entropy[i] = 0.0f;
  std::uint32_t words[4][kColumns];
  // stays 0 where the head is deterministic: the sample is the mean then
  float normal[4][kColumns] = {};
  for (int d = 0; d < in.size; ++d) {
    // a block of four words gives four numbers
    if (d % 4 == 0 && !head.deterministic) {
      DrawWords(keys, head.seed, static_cast<std::uint32_t>(d / 4), words);
      DrawNormals(words, normal[0], normal[1]);
      if (d + 2 < in.size) DrawNormals(words + 2, normal[2], normal[3]);
    }
    for (int v = 0; v < kColumns; v += kLanes) {
      const Floats noise = Load(normal[d % 4] + v);
      // one for all dimensions, or each its own
      const Floats log_std = Load(in.second + (in.second_size == 1 ? 0 : d * kColumns) + v);
      const Floats sample = Fma(Exp(log_std), noise, Load(in.first + d * kColumns + v));
      Floats density = Fma(noise * noise, Splat(-0.5f), -log_std) - kHalfLogTwoPi;
      if (squashed) {
        // less the logarithm of tanh's slope, 2 (log 2 - x - softplus(-2 x))
        const Floats slope = (0.693147180559945309f - sample) - Softplus(-2.0f * sample);
        density = density - 2.0f * slope;
      }
      Store(out.box + d * kColumns + v, squashed ? Tanh(sample) : sample);
      Store(out.log_prob + v, Load(out.log_prob + v) + density);
      // the Gaussian's also where it is squashed: that one's has no closed form
      Store(out.entropy + v, Load(out.entropy + v) + (log_std + (0.5f + kHalfLogTwoPi)));
    }
  }
}

void ActEpsilonGreedy(const Head& head, const HeadInputs& in, const NoiseKeys& keys,
                      HeadOutputs& out) {
  std::uint32_t words[4][kColumns];
  DrawWords(keys, head.seed, 0, words);
  const float epsilon = head.deterministic ? 0.0f : head.epsilon;
  for (int v = 0; v < kColumns; v += kLanes) {
    Floats most = Load(in.first + v);
    Ints action = {};
    for (int a = 1; a < in.size; ++a) {
      const Floats value = Load(in.first + a * kColumns + v);
      action = SelectInts(value > most, Ints{} + a, action);
      most = Select(value > most, value, most);
    }
    // one word says whether, another which: they are independent
    const Ints any = ToInts(UniformOfWords(words[1] + v) * static_cast<float>(in.size));
    action = SelectInts(UniformOfWords(words[0] + v) < epsilon, any, action);
    StoreInts(out.index + v, action);
    Store(out.log_prob + v, Splat(0.0f));
    Store(out.entropy + v, Splat(0.0f));
  }
}

void Act(const Head& head, const HeadInputs& inputs, const NoiseKeys& keys, HeadOutputs& outputs) {
  switch (head.kind) {
    case HeadKind::kCategorical: return ActCategorical(head, inputs, keys, outputs);
    case HeadKind::kGaussian:
    case HeadKind::kTanhGaussian: return ActGaussian(head, inputs, keys, outputs);
    case HeadKind::kEpsilonGreedy: return ActEpsilonGreedy(head, inputs, keys, outputs);
  }
}

}  // namespace
}  // namespace ROLLOUTS_POLICY_TARGET
}  // namespace rollouts::policy
