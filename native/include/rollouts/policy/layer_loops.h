// SPDX-License-Identifier: Apache-2.0
// A network's layers as loops over columns, compiled once for each instruction set; the including
// file has chosen one. On a GPU a thread computes one column, whose features lie kColumns apart.
#pragma once

#include "rollouts/policy/elementary.h"
#include "rollouts/policy/instruction.h"

namespace rollouts::policy {
inline namespace ROLLOUTS_POLICY_TARGET {
namespace {

// Functions compute the first kUsed columns: all, or half of them where there are few rows.

#if defined(ROLLOUTS_KERNEL)
// Weights of one input that a thread reads with one load: blocks begin at multiples of 16 bytes.
struct alignas(16) FourWeights {
  float of[4];
};

ROLLOUTS_HD inline FourWeights LoadFour(const float* from) {
#if defined(__CUDACC_RTC__)
  const float4 some = __ldg(reinterpret_cast<const float4*>(from));
  return {{some.x, some.y, some.z, some.w}};
#else
  return {{from[0], from[1], from[2], from[3]}};
#endif
}

// SumOutputs for a kernel's thread. All threads of a warp read the same weights, which are not
// written while the kernel runs. The loop over inputs is unrolled only by 2, because more weights
// at once would not fit the registers.
template <int kOutputs>
ROLLOUTS_HD void SumColumn(const float* weights, int stride, const float* bias, const float* x,
                           int inputs, float* out, int left) {
  static_assert(kOutputs % 4 == 0);
  float sum[kOutputs];
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) sum[o] = bias ? bias[o] : 0.0f;
#pragma unroll 2
  for (int k = 0; k < inputs; ++k) {
    const float column = x[k * kColumns];
#pragma unroll
    for (int o = 0; o < kOutputs; o += 4) {
      const FourWeights some = LoadFour(weights + k * stride + o);
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[o + i] = Fma(some.of[i], column, sum[o + i]);
    }
  }
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) {
    if (o < left) out[o * kColumns] = sum[o];
  }
}
#endif

// Computes kOutputs rows of outputs of one block: biases, then inputs in order, each with a fused
// multiply-add. It keeps as many sums as registers allow, so that the latency of the multiply-adds
// is hidden.
template <int kOutputs, int kWide>
void SumOutputs(const float* weights, int stride, const float* bias, const float* x, int inputs,
                float* out, int left) {
  Floats sum[kOutputs][kWide];
#pragma GCC unroll 32
  for (int o = 0; o < kOutputs; ++o) {
#pragma GCC unroll 2
    for (int v = 0; v < kWide; ++v) sum[o][v] = Splat(bias ? bias[o] : 0.0f);
  }
  // each input is loaded once for the tile's outputs, each weight once for its columns
#pragma GCC unroll 4
  for (int k = 0; k < inputs; ++k) {
    Floats column[kWide];
    for (int v = 0; v < kWide; ++v) column[v] = Load(x + k * kColumns + v * kLanes);
    for (int o = 0; o < kOutputs; ++o) {
      const Floats weight = Splat(weights[k * stride + o]);
      for (int v = 0; v < kWide; ++v) sum[o][v] = Fma(weight, column[v], sum[o][v]);
    }
  }
  // the last block of a layer may have outputs that are padding
  if (left >= kOutputs) {
#pragma GCC unroll 32
    for (int o = 0; o < kOutputs; ++o) {
#pragma GCC unroll 2
      for (int v = 0; v < kWide; ++v) Store(out + o * kColumns + v * kLanes, sum[o][v]);
    }
    return;
  }
#pragma GCC unroll 32
  for (int o = 0; o < kOutputs && o < left; ++o) {
#pragma GCC unroll 2
    for (int v = 0; v < kWide; ++v) Store(out + o * kColumns + v * kLanes, sum[o][v]);
  }
}

// Computes a block of kBlock outputs, the next kTile of them first, in tiles that fill the
// registers of this instruction set.
template <int kUsed, int kBlock, int kDone = 0>
void LinearBlockOf(const float* weights, const float* bias, const float* x, int inputs, float* out,
                   int left) {
  // 16 sums with AVX-512's 32 registers or a GPU's many, else 12; the other registers are for
  // operands
  constexpr int kVectors = kUsed / kLanes;
  constexpr int kWide = kVectors < 2 ? kVectors : 2;
  constexpr int kMost = (kLanes == 16 || kInKernel ? 16 : 12) / kWide;
  // tiles of equal size, rounded up
  constexpr int kRest = kBlock - kDone;
  constexpr int kTiles = (kRest + kMost - 1) / kMost;
  constexpr int kTile = (kRest + kTiles - 1) / kTiles;
#if defined(ROLLOUTS_KERNEL)
  SumColumn<kTile>(weights, kBlock, bias, x, inputs, out, left);
#else
  for (int v = 0; v < kVectors; v += kWide) {
    SumOutputs<kTile, kWide>(weights, kBlock, bias, x + v * kLanes, inputs, out + v * kLanes, left);
  }
#endif
  if constexpr (kRest > kTile) {
    if (left > kTile) {
      LinearBlockOf<kUsed, kBlock, kDone + kTile>(weights + kTile, bias ? bias + kTile : nullptr, x,
                                                  inputs, out + kTile * kColumns, left - kTile);
    }
  }
}

template <int kUsed>
void Linear(const Instruction& step, const float* params, const float* x, float* out) {
  const float* weights = params + step.weight;
  const float* bias = step.bias < 0 ? nullptr : params + step.bias;
  // the blocks of LinearBlock, in which the weights are packed
  for (int first = 0; first < step.size;) {
    const int left = step.size - first;
    const int block = left > 8 ? 16 : left > 4 ? 8 : 4;
    const float* block_bias = bias ? bias + first : nullptr;
    float* rows = out + first * kColumns;
    if (block == 16) {
      LinearBlockOf<kUsed, 16>(weights, block_bias, x, step.a_size, rows, left);
    } else if (block == 8) {
      LinearBlockOf<kUsed, 8>(weights, block_bias, x, step.a_size, rows, left);
    } else {
      LinearBlockOf<kUsed, 4>(weights, block_bias, x, step.a_size, rows, left);
    }
    weights += static_cast<std::int64_t>(block) * step.a_size;
    first += block;
  }
}

template <int kUsed>
void LayerNorm(const Instruction& step, const float* params, const float* x, float* out) {
  const float* gain = step.weight < 0 ? nullptr : params + step.weight;
  const float* bias = step.bias < 0 ? nullptr : params + step.bias;
  for (int v = 0; v < kUsed; v += kLanes) {
    Floats sum = Splat(0.0f);
    for (int k = 0; k < step.size; ++k) sum += Load(x + k * kColumns + v);
    // as in torch: squares of differences, divided by the size and not by the size minus one
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

template <int kUsed>
void Embedding(const Instruction& step, const float* params, const float* x, float* out) {
  const float* table = params + step.weight;
  const int entries = step.b_size;
  // a row of the table for each column, one by one, because the rows are scattered
  for (int column = 0; column < kUsed; ++column) {
    const int index = static_cast<int>(x[column]);
    // columns without an environment hold 0; the space bounds the others
    const float* row =
        table + static_cast<std::int64_t>(index < 0 || index >= entries ? 0 : index) * step.size;
    for (int k = 0; k < step.size; ++k) out[k * kColumns + column] = row[k];
  }
}

// Names used by the formulas in operations.h.
Floats One(Mask holds) { return Select(holds, Splat(1.0f), Splat(0.0f)); }

// The formulas as functions. Lambdas would not be compiled for the instruction set of the file.
Floats CopyOf(Floats x) { return x; }
#define ROLLOUTS_EACH(Name, name, formula, ...) \
  Floats Name##Of(Floats x) { return formula; }
#define ROLLOUTS_WITH(Name, name, numbers, formula, ...) \
  Floats Name##Of(Floats x, float a, [[maybe_unused]] float b) { return formula; }
#define ROLLOUTS_PAIR(Name, name, formula, ...) \
  Floats Name##Of(Floats x, Floats y) { return formula; }
#define ROLLOUTS_LOOP(...)
ROLLOUTS_OPERATIONS(ROLLOUTS_EACH, ROLLOUTS_WITH, ROLLOUTS_PAIR, ROLLOUTS_LOOP)
#undef ROLLOUTS_EACH
#undef ROLLOUTS_WITH
#undef ROLLOUTS_PAIR

template <int kUsed, Floats (*kFunction)(Floats)>
void Map(const Instruction& step, const float* x, float* out) {
  for (int k = 0; k < step.size; ++k) {
    for (int v = 0; v < kUsed; v += kLanes) {
      Store(out + k * kColumns + v, kFunction(Load(x + k * kColumns + v)));
    }
  }
}

template <int kUsed, Floats (*kFunction)(Floats, float, float)>
void MapWith(const Instruction& step, const float* x, float* out) {
  for (int k = 0; k < step.size; ++k) {
    for (int v = 0; v < kUsed; v += kLanes) {
      const Floats of = Load(x + k * kColumns + v);
      Store(out + k * kColumns + v, kFunction(of, step.number[0], step.number[1]));
    }
  }
}

// One of the two registers may have a single feature, which is combined with each feature of the
// other one.
template <int kUsed, Floats (*kFunction)(Floats, Floats)>
void Combine(const Instruction& step, const float* rows, float* out) {
  const float* a = rows + step.a * kColumns;
  const float* b = rows + step.b * kColumns;
  const int a_step = step.a_size == 1 ? 0 : kColumns;
  const int b_step = step.b_size == 1 ? 0 : kColumns;
  for (int k = 0; k < step.size; ++k) {
    for (int v = 0; v < kUsed; v += kLanes) {
      Store(out + k * kColumns + v, kFunction(Load(a + k * a_step + v), Load(b + k * b_step + v)));
    }
  }
}

// Each of the three registers may have a single feature.
template <int kUsed>
void Where(const Instruction& step, const float* rows, float* out) {
  const float* condition = rows + step.a * kColumns;
  const float* yes = rows + step.b * kColumns;
  const float* no = rows + step.c * kColumns;
  const int condition_step = step.a_size == 1 ? 0 : kColumns;
  const int yes_step = step.b_size == 1 ? 0 : kColumns;
  const int no_step = step.c_size == 1 ? 0 : kColumns;
  for (int k = 0; k < step.size; ++k) {
    for (int v = 0; v < kUsed; v += kLanes) {
      const Mask holds = Load(condition + k * condition_step + v) != 0.0f;
      Store(out + k * kColumns + v,
            Select(holds, Load(yes + k * yes_step + v), Load(no + k * no_step + v)));
    }
  }
}

template <int kUsed>
void Constant(const Instruction& step, const float* params, float* out) {
  for (int k = 0; k < step.size; ++k) {
    for (int v = 0; v < kUsed; v += kLanes) {
      Store(out + k * kColumns + v, Splat(params[step.weight + k]));
    }
  }
}

template <int kUsed>
void RunOne(const Instruction& step, const float* params, float* rows) {
  const float* x = rows + step.a * kColumns;
  float* out = rows + step.out * kColumns;
  switch (step.kind) {
    case OpKind::kCopy: return Map<kUsed, CopyOf>(step, x, out);
    case OpKind::kLinear: return Linear<kUsed>(step, params, x, out);
    case OpKind::kLayerNorm: return LayerNorm<kUsed>(step, params, x, out);
    case OpKind::kEmbedding: return Embedding<kUsed>(step, params, x, out);
    case OpKind::kConstant:
    case OpKind::kLiteral: return Constant<kUsed>(step, params, out);
    case OpKind::kWhere: return Where<kUsed>(step, rows, out);
    case OpKind::kConcat:
    case OpKind::kSlice: return;  // laid out, never run
#define ROLLOUTS_EACH(Name, ...) \
  case OpKind::k##Name: return Map<kUsed, Name##Of>(step, x, out);
#define ROLLOUTS_WITH(Name, ...) \
  case OpKind::k##Name: return MapWith<kUsed, Name##Of>(step, x, out);
#define ROLLOUTS_PAIR(Name, ...) \
  case OpKind::k##Name: return Combine<kUsed, Name##Of>(step, rows, out);
      ROLLOUTS_OPERATIONS(ROLLOUTS_EACH, ROLLOUTS_WITH, ROLLOUTS_PAIR, ROLLOUTS_LOOP)
#undef ROLLOUTS_EACH
#undef ROLLOUTS_WITH
#undef ROLLOUTS_PAIR
#undef ROLLOUTS_LOOP
  }
}

template <int kUsed>
void ForwardOf(const Instruction* instructions, std::int32_t count, const float* params,
               float* rows, std::int32_t columns) {
  constexpr int kHalf = kUsed / 2;
  if constexpr (kUsed == kSpan && kHalf >= kLanes) {
    if (columns <= kHalf) return ForwardOf<kHalf>(instructions, count, params, rows, columns);
  }
  for (std::int32_t i = 0; i < count; ++i) RunOne<kUsed>(instructions[i], params, rows);
}

// Implements Kernels::forward.
void Forward(const Instruction* instructions, std::int32_t count, const float* params, float* rows,
             std::int32_t columns) {
  ForwardOf<kSpan>(instructions, count, params, rows, columns);
}

}  // namespace
}  // namespace ROLLOUTS_POLICY_TARGET
}  // namespace rollouts::policy
