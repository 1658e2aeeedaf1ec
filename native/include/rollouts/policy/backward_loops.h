// SPDX-License-Identifier: Apache-2.0
// The layers' gradients as loops over columns, compiled once for each instruction set; the including
// file has chosen one.
//
// Each sum over columns or features is taken in one order, whatever the width of a vector: the
// gradient of a matrix is a product whose lanes are the matrix' inputs, and not columns.
#pragma once

#include <utility>

#include "rollouts/policy/backward.h"
#include "rollouts/policy/linear_tiles.h"

namespace rollouts::policy {
inline namespace ROLLOUTS_POLICY_TARGET {
namespace {

// Names used by the slopes in operations.h.
Floats SiluSlope(Floats x, Floats z) {
  const Floats share = Sigmoid(x);
  return share + z * (1.0f - share);
}
Floats GeluSlope(Floats x) {
  const Floats below = 0.5f * (1.0f + Erf(x * 0.707106781186547524f));
  return Fma(x * 0.398942280401432678f, Exp(x * x * -0.5f), below);
}
Floats GeluTanhSlope(Floats x) {
  constexpr float kFactor = 0.797884560802865356f;
  const Floats square = x * x;
  const Floats y = Tanh(kFactor * Fma(square * x, Splat(0.044715f), x));
  const Floats inner = kFactor * Fma(square, Splat(0.134145f), Splat(1.0f));
  return 0.5f * (1.0f + y) + 0.5f * x * (1.0f - y * y) * inner;
}
// The share of x in the gradient of max(x, y).
Floats Share(Floats x, Floats y) {
  return Select(x > y, Splat(1.0f), Select(x == y, Splat(0.5f), Splat(0.0f)));
}

// The slopes as functions; many use only a part of their arguments.
#define ROLLOUTS_EACH(Name, name, formula, needs, slope)                           \
  Floats Name##Slope([[maybe_unused]] Floats x, [[maybe_unused]] Floats z, float, float) { \
    return slope;                                                                  \
  }
#define ROLLOUTS_WITH(Name, name, numbers, formula, needs, slope)                  \
  Floats Name##Slope([[maybe_unused]] Floats x, [[maybe_unused]] Floats z,         \
                     [[maybe_unused]] float a, [[maybe_unused]] float b) {         \
    return slope;                                                                  \
  }
#define ROLLOUTS_PAIR(Name, name, formula, needs, slope_x, slope_y)                            \
  Floats Name##SlopeX([[maybe_unused]] Floats x, [[maybe_unused]] Floats y) { return slope_x; } \
  Floats Name##SlopeY([[maybe_unused]] Floats x, [[maybe_unused]] Floats y) { return slope_y; }
#define ROLLOUTS_LOOP(...)
ROLLOUTS_OPERATIONS(ROLLOUTS_EACH, ROLLOUTS_WITH, ROLLOUTS_PAIR, ROLLOUTS_LOOP)
#undef ROLLOUTS_EACH
#undef ROLLOUTS_WITH
#undef ROLLOUTS_PAIR

// One group of columns of a chunk.
struct Group {
  const float* values;
  float* gradients;
  bool adds;  // to the sums of earlier groups
};

Group GroupOf(const Chunk& chunk, int group) {
  const std::int64_t offset = std::int64_t{group} * chunk.num_rows * kColumns;
  return {chunk.values + offset, chunk.gradients + offset, chunk.adds || group > 0};
}

// Adds to an input's gradient, or writes its first contribution.
void Give(float* to, Floats gradient, bool adds) {
  Store(to, adds ? Load(to) + gradient : gradient);
}

template <Floats (*kSlope)(Floats, Floats, float, float)>
void MapBack(const Instruction& step, const BackwardStep& back, const Group& group) {
  const float* x = group.values + step.a * kColumns;
  const float* z = group.values + step.out * kColumns;
  const float* given = group.gradients + step.out * kColumns;
  float* to = group.gradients + step.a * kColumns;
  // copies, which cannot overlap with an array
  const int count = step.size * kColumns;
  const float number[] = {step.number[0], step.number[1]};
  const bool adds = back.adds_a;
  for (int i = 0; i < count; i += kLanes) {
    const Floats slope = kSlope(Load(x + i), Load(z + i), number[0], number[1]);
    Give(to + i, Load(given + i) * slope, adds);
  }
}

void CopyBack(const Instruction& step, const BackwardStep& back, const Group& group) {
  const float* given = group.gradients + step.out * kColumns;
  float* to = group.gradients + step.a * kColumns;
  for (int i = 0; i < step.size * kColumns; i += kLanes) Give(to + i, Load(given + i), back.adds_a);
}

// A register that an operation reads; a single feature is combined with all features of the other
// registers.
struct Part {
  int row;
  int size;
  int step() const { return size == 1 ? 0 : kColumns; }
};

// Adds the gradient of `part`, which is x or y; kSlope is the slope with respect to it.
template <Floats (*kSlope)(Floats, Floats)>
void PartBack(const Instruction& step, const Group& group, Part x, Part y, Part part, bool adds) {
  const float* given = group.gradients + step.out * kColumns;
  const float* x_values = group.values + x.row * kColumns;
  const float* y_values = group.values + y.row * kColumns;
  float* to = group.gradients + part.row * kColumns;
  for (int v = 0; v < kColumns; v += kLanes) {
    Floats sum = Splat(0.0f);
    for (int k = 0; k < step.size; ++k) {
      const Floats slope = kSlope(Load(x_values + k * x.step() + v), Load(y_values + k * y.step() + v));
      const Floats gradient = Load(given + k * kColumns + v) * slope;
      if (part.size == step.size) {
        Give(to + k * kColumns + v, gradient, adds);
      } else {
        sum += gradient;
      }
    }
    if (part.size != step.size) Give(to + v, sum, adds);
  }
}

template <Floats (*kSlopeX)(Floats, Floats), Floats (*kSlopeY)(Floats, Floats)>
void CombineBack(const Instruction& step, const BackwardStep& back, const Group& group) {
  const Part x{step.a, step.a_size}, y{step.b, step.b_size};
  // y first, because the result's gradient may lie where x's values were
  if (back.wants_b) PartBack<kSlopeY>(step, group, x, y, y, back.adds_b);
  if (back.wants_a) PartBack<kSlopeX>(step, group, x, y, x, back.adds_a);
}

Floats WhereHolds(Floats condition, Floats) { return One(condition != 0.0f); }
Floats WhereNot(Floats condition, Floats) { return One(condition == 0.0f); }

void WhereBack(const Instruction& step, const BackwardStep& back, const Group& group) {
  const Part condition{step.a, step.a_size}, yes{step.b, step.b_size}, no{step.c, step.c_size};
  if (back.wants_b) PartBack<WhereHolds>(step, group, condition, yes, yes, back.adds_b);
  if (back.wants_c) PartBack<WhereNot>(step, group, condition, no, no, back.adds_c);
}

// The sum to which gradients are added.
Floats SumBefore(const float* sum, bool adds) { return adds ? Load(sum) : Splat(0.0f); }

// Sums the gradients (size, kColumns) of kGroups groups to an array of the same shape.
template <int kGroups = 1>
void AddColumns(const float* gradients, int size, float* sums, bool adds,
                std::int64_t group_size = 0) {
  for (int i = 0; i < size * kColumns; i += kLanes) {
    Floats sum = SumBefore(sums + i, adds);
    for (int g = 0; g < kGroups; ++g) sum += Load(gradients + g * group_size + i);
    Store(sums + i, sum);
  }
}

void AddColumnsOf(const Chunk& chunk, int row, int size, float* sums) {
  const std::int64_t group_size = std::int64_t{chunk.num_rows} * kColumns;
  const float* gradients = chunk.gradients + row * kColumns;
  if (chunk.groups == kChunkGroups) {
    return AddColumns<kChunkGroups>(gradients, size, sums, chunk.adds, group_size);
  }
  for (int g = 0; g < chunk.groups; ++g) {
    AddColumns(gradients + g * group_size, size, sums, chunk.adds || g > 0);
  }
}

void LayerNormBack(const Instruction& step, const BackwardStep& back, const float* params,
                   float* sums, const Group& group) {
  const float* gain = step.weight < 0 ? nullptr : params + step.weight;
  const float* x = group.values + step.a * kColumns;
  const float* given = group.gradients + step.out * kColumns;
  float* to = group.gradients + step.a * kColumns;
  const float size = static_cast<float>(step.size);
  if (back.bias_sum >= 0) AddColumns(given, step.size, sums + back.bias_sum, group.adds);
  for (int v = 0; v < kColumns; v += kLanes) {
    Floats sum = Splat(0.0f), squares = Splat(0.0f);
    for (int k = 0; k < step.size; ++k) sum += Load(x + k * kColumns + v);
    const Floats mean = sum / size;
    for (int k = 0; k < step.size; ++k) {
      const Floats off = Load(x + k * kColumns + v) - mean;
      squares = Fma(off, off, squares);
    }
    const Floats scale = 1.0f / Sqrt(squares / size + step.number[0]);
    // means of the gradient with respect to the normalised input, and of their product
    Floats gradients = Splat(0.0f), products = Splat(0.0f);
    for (int k = 0; k < step.size; ++k) {
      const Floats normal = (Load(x + k * kColumns + v) - mean) * scale;
      Floats gradient = Load(given + k * kColumns + v);
      if (back.weight_sum >= 0) {
        float* gain_sum = sums + back.weight_sum + k * kColumns + v;
        Store(gain_sum, Fma(gradient, normal, SumBefore(gain_sum, group.adds)));
      }
      if (gain) gradient = gradient * gain[k];
      gradients += gradient;
      products = Fma(gradient, normal, products);
    }
    if (!back.wants_a) continue;
    gradients = gradients / size;
    products = products / size;
    for (int k = 0; k < step.size; ++k) {
      const Floats normal = (Load(x + k * kColumns + v) - mean) * scale;
      Floats gradient = Load(given + k * kColumns + v);
      if (gain) gradient = gradient * gain[k];
      Give(to + k * kColumns + v, scale * (gradient - gradients - normal * products), back.adds_a);
    }
  }
}

void EmbeddingBack(const Instruction& step, const BackwardStep& back, float* sums,
                   const Group& group) {
  const float* x = group.values + step.a * kColumns;
  const float* given = group.gradients + step.out * kColumns;
  if (!group.adds) {
    const std::int64_t size = std::int64_t{step.b_size} * step.size;
    for (std::int64_t i = 0; i < size; ++i) sums[back.weight_sum + i] = 0.0f;
  }
  for (int column = 0; column < kColumns; ++column) {
    const int index = static_cast<int>(x[column]);
    // the same entry as in the forward pass
    const int entry = index < 0 || index >= step.b_size ? 0 : index;
    float* row = sums + back.weight_sum + std::int64_t{entry} * step.size;
    for (int k = 0; k < step.size; ++k) row[k] += given[k * kColumns + column];
  }
}

// A vector of the lanes kLane of `a`; numbers from kLanes on are lanes of `b`.
template <int... kLane>
Floats Shuffle(Floats a, Floats b) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, kLane...);
#else
  return __builtin_shuffle(a, b, Ints{kLane...});
#endif
}

// Swaps the off-diagonal blocks, of kBlock lanes each, of two vectors.
template <int kBlock, int... kLane>
Floats LowerOf(Floats a, Floats b, std::integer_sequence<int, kLane...>) {
  return Shuffle<(kLane & kBlock ? kLanes + kLane - kBlock : kLane)...>(a, b);
}
template <int kBlock, int... kLane>
Floats UpperOf(Floats a, Floats b, std::integer_sequence<int, kLane...>) {
  return Shuffle<(kLane & kBlock ? kLanes + kLane : kLane + kBlock)...>(a, b);
}

// Inlined, so that the rows stay in registers.
template <int kBlock>
ROLLOUTS_INLINE void Swap(Floats (&rows)[kLanes]) {
  constexpr auto kAll = std::make_integer_sequence<int, kLanes>();
  for (int i = 0; i < kLanes; ++i) {
    if (i & kBlock) continue;
    const Floats lower = LowerOf<kBlock>(rows[i], rows[i + kBlock], kAll);
    rows[i + kBlock] = UpperOf<kBlock>(rows[i], rows[i + kBlock], kAll);
    rows[i] = lower;
  }
  if constexpr (kBlock > 1) Swap<kBlock / 2>(rows);
}

// Loads kLanes rows of as many numbers, transposed. The largest blocks are swapped by loading
// halves of rows, because a shuffle takes longer than a load. Row i begins at `row(i)`.
template <typename Row>
ROLLOUTS_INLINE void LoadTransposed(const Row& row, Floats (&rows)[kLanes]) {
  constexpr int kHalf = kLanes / 2;
  for (int i = 0; i < kHalf; ++i) {
    const float *upper = row(i), *lower = row(i + kHalf);
    rows[i] = LoadHalves(upper, lower);
    rows[i + kHalf] = LoadHalves(upper + kHalf, lower + kHalf);
  }
  Swap<kHalf / 2>(rows);
}

// Transposes a register's features (size, kColumns) to (kColumns, padded). Features from the size
// up to the padded one are whatever lies after the register.
void Transpose(const float* from, int padded, float* to) {
  for (int k = 0; k < padded; k += kLanes) {
    for (int v = 0; v < kColumns; v += kLanes) {
      Floats rows[kLanes];
      LoadTransposed([=](int i) { return from + (k + i) * kColumns + v; }, rows);
      for (int i = 0; i < kLanes; ++i) Store(to + (v + i) * padded + k, rows[i]);
    }
  }
}

// Computes kOutputs rows and kWide vectors of a matrix' gradient: for each column in turn, a fused
// multiply-add of the output's gradient and the inputs.
template <int kOutputs, int kWide>
void SumWeights(const float* inputs, int padded, const float* gradients, std::int64_t group_size,
                int groups, float* sums, bool adds) {
  Floats sum[kOutputs][kWide];
#pragma GCC unroll 32
  for (int o = 0; o < kOutputs; ++o) {
#pragma GCC unroll 2
    for (int w = 0; w < kWide; ++w) sum[o][w] = Splat(0.0f);
  }
  if (adds) {
#pragma GCC unroll 32
    for (int o = 0; o < kOutputs; ++o) {
#pragma GCC unroll 2
      for (int w = 0; w < kWide; ++w) sum[o][w] = Load(sums + o * padded + w * kLanes);
    }
  }
  for (int g = 0; g < groups; ++g) {
    for (int c = 0; c < kColumns; ++c) {
      const float* row = inputs + (g * kColumns + c) * padded;
      Floats x[kWide];
      for (int w = 0; w < kWide; ++w) x[w] = Load(row + w * kLanes);
#pragma GCC unroll 32
      for (int o = 0; o < kOutputs; ++o) {
        const Floats gradient = Splat(gradients[g * group_size + o * kColumns + c]);
        for (int w = 0; w < kWide; ++w) sum[o][w] = Fma(gradient, x[w], sum[o][w]);
      }
    }
  }
#pragma GCC unroll 32
  for (int o = 0; o < kOutputs; ++o) {
#pragma GCC unroll 2
    for (int w = 0; w < kWide; ++w) Store(sums + o * padded + w * kLanes, sum[o][w]);
  }
}

// Adds the products of each output's gradient and kTail inputs, column by column, to sums (outputs,
// kTail, kColumns).
template <int kTail>
void SumTail(const float* inputs, const float* gradients, std::int64_t group_size, int groups,
             int outputs, float* sums, bool adds) {
  for (int o = 0; o < outputs; ++o, sums += kTail * kColumns) {
    for (int v = 0; v < kColumns; v += kLanes) {
      Floats sum[kTail];
#pragma GCC unroll 4
      for (int k = 0; k < kTail; ++k) sum[k] = SumBefore(sums + k * kColumns + v, adds);
      for (int g = 0; g < groups; ++g) {
        const Floats gradient = Load(gradients + g * group_size + o * kColumns + v);
#pragma GCC unroll 4
        for (int k = 0; k < kTail; ++k) {
          sum[k] = Fma(gradient, Load(inputs + g * group_size + k * kColumns + v), sum[k]);
        }
      }
#pragma GCC unroll 4
      for (int k = 0; k < kTail; ++k) Store(sums + k * kColumns + v, sum[k]);
    }
  }
}

// Computes the gradient for all outputs and kWide vectors of inputs.
template <int kWide>
void SumWeightColumns(const float* inputs, int padded, const float* gradients,
                      std::int64_t group_size, int groups, int outputs, float* sums, bool adds) {
  // as many sums as registers allow
  constexpr int kTile = (kLanes == 16 ? 24 : 12) / kWide;
  int o = 0;
  for (; o + kTile <= outputs; o += kTile) {
    SumWeights<kTile, kWide>(inputs, padded, gradients + o * kColumns, group_size, groups,
                             sums + o * padded, adds);
  }
  for (; o + 4 <= outputs; o += 4) {
    SumWeights<4, kWide>(inputs, padded, gradients + o * kColumns, group_size, groups,
                         sums + o * padded, adds);
  }
  for (; o + 2 <= outputs; o += 2) {
    SumWeights<2, kWide>(inputs, padded, gradients + o * kColumns, group_size, groups,
                         sums + o * padded, adds);
  }
  if (o < outputs) {
    SumWeights<1, kWide>(inputs, padded, gradients + o * kColumns, group_size, groups,
                         sums + o * padded, adds);
  }
}

// Gradients of a linear's inputs: for each output in order, a fused multiply-add. Where the inputs are
// results of a tanh, they are multiplied by its slope.
struct InputTiles {
  const float* matrix;  // (outputs, inputs)
  const float* given;   // gradients of the first group's outputs
  const float* tanh;    // the inputs where they are results of a tanh, or null
  float* to;            // gradients of its inputs
  int inputs, outputs;
  bool adds;

  int num_rows() const { return inputs; }

  template <int kTile, int kWide>
  void Run(int first, std::int64_t place, std::int64_t apart) const {
    Floats sum[kTile][kWide];
#pragma GCC unroll 32
    for (int k = 0; k < kTile; ++k) {
#pragma GCC unroll 2
      for (int v = 0; v < kWide; ++v) sum[k][v] = Splat(0.0f);
    }
    AddProducts<kTile, kWide>(matrix + first, 1, inputs, outputs, given + place, apart, sum);
    const std::int64_t rows = first * kColumns + place;
    if (tanh) {
#pragma GCC unroll 32
      for (int k = 0; k < kTile; ++k) {
#pragma GCC unroll 2
        for (int v = 0; v < kWide; ++v) {
          const Floats z = Load(tanh + rows + k * kColumns + v * apart);
          sum[k][v] = sum[k][v] * TanhSlope(z, z, 0.0f, 0.0f);
        }
      }
    }
#pragma GCC unroll 32
    for (int k = 0; k < kTile; ++k) {
#pragma GCC unroll 2
      for (int v = 0; v < kWide; ++v) {
        Give(to + rows + k * kColumns + v * apart, sum[k][v], adds);
      }
    }
  }
};

// Computes the gradient of a linear's weights.
void WeightsBack(const Instruction& step, const BackwardStep& back, float* sums,
                 const Chunk& chunk) {
  const std::int64_t group_size = std::int64_t{chunk.num_rows} * kColumns;
  const float* values = chunk.values + step.a * kColumns;
  const float* given = chunk.gradients + step.out * kColumns;
  float* transposed = chunk.transposed + back.transposed;
  for (int g = 0; g < chunk.groups && back.transposes; ++g) {
    Transpose(values + g * group_size, back.summed, transposed + g * kColumns * back.summed);
  }
  const int inputs = step.a_size - back.tail;
  int k = 0;
  // two vectors at once while there are enough inputs
  for (; k + kLanes < inputs; k += 2 * kLanes) {
    SumWeightColumns<2>(transposed + k, back.summed, given, group_size, chunk.groups, step.size,
                        sums + k, chunk.adds);
  }
  if (k < inputs) {
    SumWeightColumns<1>(transposed + k, back.summed, given, group_size, chunk.groups, step.size,
                        sums + k, chunk.adds);
  }
  const float* last = values + inputs * kColumns;
  const bool adds = chunk.adds;
  sums += std::int64_t{step.size} * back.summed;
  switch (back.tail) {
    case 1: return SumTail<1>(last, given, group_size, chunk.groups, step.size, sums, adds);
    case 2: return SumTail<2>(last, given, group_size, chunk.groups, step.size, sums, adds);
    case 3: return SumTail<3>(last, given, group_size, chunk.groups, step.size, sums, adds);
    case 4: return SumTail<4>(last, given, group_size, chunk.groups, step.size, sums, adds);
    default: return;
  }
}

void LinearBack(const Instruction& step, const BackwardStep& back, const float* const* params,
                float* sums, const Chunk& chunk) {
  if (back.bias_sum >= 0) AddColumnsOf(chunk, step.out, step.size, sums + back.bias_sum);
  if (back.weight_sum >= 0) WeightsBack(step, back, sums + back.weight_sum, chunk);
  if (!back.wants_a) return;
  const InputTiles tiles{.matrix = params[back.matrix],
                         .given = chunk.gradients + step.out * kColumns,
                         .tanh = back.through_tanh ? chunk.values + step.a * kColumns : nullptr,
                         .to = chunk.gradients + step.a * kColumns,
                         .inputs = step.a_size,
                         .outputs = step.size,
                         .adds = back.adds_a};
  RunTiles(tiles, std::int64_t{chunk.num_rows} * kColumns, chunk.groups);
}

void OneBack(const Instruction& step, const BackwardStep& back, const float* params, float* sums,
             const Group& group) {
  switch (step.kind) {
    case OpKind::kCopy: return CopyBack(step, back, group);
    case OpKind::kLayerNorm: return LayerNormBack(step, back, params, sums, group);
    case OpKind::kEmbedding: return EmbeddingBack(step, back, sums, group);
    case OpKind::kConstant:
      return AddColumns(group.gradients + step.out * kColumns, step.size, sums + back.weight_sum,
                        group.adds);
    case OpKind::kWhere: return WhereBack(step, back, group);
#define ROLLOUTS_EACH(Name, ...) \
  case OpKind::k##Name: return MapBack<Name##Slope>(step, back, group);
#define ROLLOUTS_PAIR(Name, ...) \
  case OpKind::k##Name: return CombineBack<Name##SlopeX, Name##SlopeY>(step, back, group);
      ROLLOUTS_OPERATIONS(ROLLOUTS_EACH, ROLLOUTS_EACH, ROLLOUTS_PAIR, ROLLOUTS_LOOP)
#undef ROLLOUTS_EACH
#undef ROLLOUTS_PAIR
#undef ROLLOUTS_LOOP
    case OpKind::kLinear:
    case OpKind::kLiteral:
    case OpKind::kConcat:
    case OpKind::kSlice: return;
  }
}

bool GivesAny(const BackwardStep& back) {
  return back.wants_a || back.wants_b || back.wants_c || back.weight_sum >= 0 || back.bias_sum >= 0;
}

// Implements Kernels::backward.
void Backward(const Instruction* instructions, const BackwardStep* steps, std::int32_t count,
              const float* packed, const float* const* params, const Chunk& chunk, float* sums) {
  for (std::int32_t i = count - 1; i >= 0; --i) {
    const Instruction& step = instructions[i];
    if (!GivesAny(steps[i])) continue;
    if (step.kind == OpKind::kLinear) {
      LinearBack(step, steps[i], params, sums, chunk);
      continue;
    }
    for (int g = 0; g < chunk.groups; ++g) {
      OneBack(step, steps[i], packed, sums, GroupOf(chunk, g));
    }
  }
}

}  // namespace
}  // namespace ROLLOUTS_POLICY_TARGET
}  // namespace rollouts::policy
