// SPDX-License-Identifier: Apache-2.0
// Products of a learner's linear layers, which read matrices from the module's own memory: tiles of
// sums that fill the registers, and the forward pass of several groups of columns. Compiled once
// for each instruction set; the including file has chosen one.
#pragma once

#include "rollouts/policy/backward.h"
#include "rollouts/policy/layer_loops.h"

namespace rollouts::policy {
inline namespace ROLLOUTS_POLICY_TARGET {
namespace {

// Adds `count` products to each sum, in order, each with a fused multiply-add. Sum `t` of kWide
// vectors of columns, which lie `apart` from each other, takes product i from
// matrix[t * across + i * along] and the columns of row i.
template <int kTile, int kWide>
ROLLOUTS_INLINE void AddProducts(const float* matrix, std::int64_t across, std::int64_t along,
                                 int count, const float* columns, std::int64_t apart,
                                 Floats (&sum)[kTile][kWide]) {
#pragma GCC unroll 4
  for (int i = 0; i < count; ++i) {
    Floats column[kWide];
    for (int v = 0; v < kWide; ++v) column[v] = Load(columns + i * kColumns + v * apart);
#pragma GCC unroll 32
    for (int t = 0; t < kTile; ++t) {
      const Floats weight = Splat(matrix[t * across + i * along]);
      for (int v = 0; v < kWide; ++v) sum[t][v] = Fma(weight, column[v], sum[t][v]);
    }
  }
}

// Runs a job's rows from `first` on, kTile of them at a time, and returns the first row that is
// left.
template <int kGroups, int kTile, int kWide, typename Job>
int TilesOf(const Job& job, std::int64_t group_size, std::int64_t group, int first) {
  const std::int64_t apart = kGroups == 2 ? group_size : kLanes;
  for (; first + kTile <= job.num_rows(); first += kTile) {
    for (int v = 0; v < kColumns; v += kGroups == 2 ? kLanes : kWide * kLanes) {
      job.template Run<kTile, kWide>(first, group * group_size + v, apart);
    }
  }
  return first;
}

// Runs all rows of kGroups groups, with as many sums as registers allow.
template <int kGroups, typename Job>
void RunTilesOf(const Job& job, std::int64_t group_size, std::int64_t group) {
  constexpr int kVectors = kColumns / kLanes;
  constexpr int kWide = kGroups == 2 ? 2 : kVectors < 2 ? kVectors : 2;
  constexpr int kTile = (kLanes == 16 ? 16 : 12) / kWide;
  int row = TilesOf<kGroups, kTile, kWide>(job, group_size, group, 0);
  // tiles for just the remaining rows, because nothing may be read beyond the matrix
  row = TilesOf<kGroups, 4, kWide>(job, group_size, group, row);
  row = TilesOf<kGroups, 2, kWide>(job, group_size, group, row);
  TilesOf<kGroups, 1, kWide>(job, group_size, group, row);
}

// Runs all rows of `groups` groups of columns, which lie `group_size` apart. A job computes kTile
// rows from `first` on for kWide vectors of columns by Run<kTile, kWide>(first, place, apart): the
// first vector lies at `place` in each row, the second `apart` from it.
template <typename Job>
void RunTiles(const Job& job, std::int64_t group_size, std::int32_t groups) {
  std::int32_t group = 0;
  // where a vector holds a whole group, two groups are computed together
  for (; kLanes == kColumns && group + 2 <= groups; group += 2) {
    RunTilesOf<2>(job, group_size, group);
  }
  for (; group < groups; ++group) RunTilesOf<1>(job, group_size, group);
}

// Outputs of a linear: biases, then inputs in order, as those of SumOutputs.
struct OutputTiles {
  const float* matrix;  // (outputs, inputs)
  const float* bias;    // null: none
  const float* from;    // the inputs of the first group
  float* to;            // the outputs of the first group
  int inputs, outputs;

  int num_rows() const { return outputs; }

  template <int kTile, int kWide>
  void Run(int first, std::int64_t place, std::int64_t apart) const {
    Floats sum[kTile][kWide];
#pragma GCC unroll 32
    for (int o = 0; o < kTile; ++o) {
#pragma GCC unroll 2
      for (int v = 0; v < kWide; ++v) sum[o][v] = Splat(bias ? bias[first + o] : 0.0f);
    }
    AddProducts<kTile, kWide>(matrix + std::int64_t{first} * inputs, inputs, 1, inputs,
                              from + place, apart, sum);
    float* rows = to + first * kColumns + place;
#pragma GCC unroll 32
    for (int o = 0; o < kTile; ++o) {
#pragma GCC unroll 2
      for (int v = 0; v < kWide; ++v) Store(rows + o * kColumns + v * apart, sum[o][v]);
    }
  }
};

// Implements Kernels::forward_groups.
void ForwardGroups(const Instruction* instructions, const BackwardStep* steps, std::int32_t count,
                   const float* packed, const float* const* params, std::int32_t num_rows,
                   std::int32_t groups, float* values) {
  const std::int64_t group_size = std::int64_t{num_rows} * kColumns;
  for (std::int32_t i = 0; i < count; ++i) {
    const Instruction& step = instructions[i];
    if (step.kind == OpKind::kLinear) {
      const OutputTiles tiles{.matrix = params[steps[i].matrix],
                              .bias = step.bias < 0 ? nullptr : packed + step.bias,
                              .from = values + step.a * kColumns,
                              .to = values + step.out * kColumns,
                              .inputs = step.a_size,
                              .outputs = step.size};
      RunTiles(tiles, group_size, groups);
      continue;
    }
    for (std::int32_t g = 0; g < groups; ++g) {
      RunOne<kColumns>(step, packed, values + g * group_size);
    }
  }
}

}  // namespace
}  // namespace ROLLOUTS_POLICY_TARGET
}  // namespace rollouts::policy
