// SPDX-License-Identifier: Apache-2.0
// Checks, sums and packing of whole arrays, in loops compiled once for each instruction set; the
// including file has chosen one.
#pragma once

#include "rollouts/policy/backward_loops.h"

namespace rollouts::policy {
inline namespace ROLLOUTS_POLICY_TARGET {
namespace {

// Tells if no lane is nan or another number than 0.
bool AllZero(Floats sum) {
  float left = 0;
  // a nan in any lane makes the sum nan
  for (int lane = 0; lane < kLanes; ++lane) left += sum[lane];
  return left == 0.0f;
}

// Implements Kernels::is_finite.
bool IsFinite(std::int64_t size, const float* values) {
  constexpr int kSums = 4;
  // each sum stays 0 unless a value is not finite
  Floats sums[kSums];
  for (int s = 0; s < kSums; ++s) sums[s] = Splat(0.0f);
  std::int64_t i = 0;
  for (; i + kSums * kLanes <= size; i += kSums * kLanes) {
    for (int s = 0; s < kSums; ++s) sums[s] += Load(values + i + s * kLanes) * 0.0f;
  }
  for (; i < size; ++i) sums[0] += values[i] * 0.0f;
  return AllZero(sums[0] + sums[1] + (sums[2] + sums[3]));
}

// Implements Kernels::sum_squares.
double SumSquares(std::int64_t size, const float* values) {
  constexpr int kSums = kColumns / kDoubles;
  Doubles sums[kSums];
  for (int s = 0; s < kSums; ++s) sums[s] = Doubles{};
  std::int64_t i = 0;
  for (; i + kColumns <= size; i += kColumns) {
    for (int s = 0; s < kSums; ++s) {
      sums[s] = AddSquares(LoadDoubles(values + i + s * kDoubles), sums[s]);
    }
  }
  double lanes[kColumns];
  __builtin_memcpy(lanes, sums, sizeof(lanes));
  for (int lane = 0; i < size; ++i, ++lane) lanes[lane] += double{values[i]} * values[i];
  double squares = 0;
  for (const double lane : lanes) squares += lane;
  return squares;
}

// Adds the second half of some vectors, or numbers, to the first half, until one is left.
template <int kCount, typename Number>
ROLLOUTS_INLINE void Fold(Number* numbers) {
#pragma GCC unroll 8
  for (int i = 0; i < kCount / 2; ++i) numbers[i] += numbers[i + kCount / 2];
  if constexpr (kCount > 2) Fold<kCount / 2>(numbers);
}

// Adds the lanes of kLanes rows, half to half, until a vector holds the sum of each row. One
// addition does so for two rows.
template <int kBlock>
ROLLOUTS_INLINE void FoldLanes(Floats (&rows)[kLanes]) {
  constexpr auto kAll = std::make_integer_sequence<int, kLanes>();
  for (int i = 0; i < kBlock; ++i) {
    rows[i] = LowerOf<kBlock>(rows[i], rows[i + kBlock], kAll) +
              UpperOf<kBlock>(rows[i], rows[i + kBlock], kAll);
  }
  if constexpr (kBlock > 1) FoldLanes<kBlock / 2>(rows);
}

// Implements Kernels::add_lanes.
void AddLanes(const float* from, std::int64_t rows, float* to) {
  constexpr int kVectors = kColumns / kLanes;
  std::int64_t row = 0;
  for (; row + kLanes <= rows; row += kLanes) {
    Floats lanes[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      Floats some[kVectors];
      for (int v = 0; v < kVectors; ++v) some[v] = Load(from + (row + i) * kColumns + v * kLanes);
      if constexpr (kVectors > 1) Fold<kVectors>(some);
      lanes[i] = some[0];
    }
    FoldLanes<kLanes / 2>(lanes);
    Store(to + row, lanes[0]);
  }
  for (; row < rows; ++row) {
    float lanes[kColumns];
    __builtin_memcpy(lanes, from + row * kColumns, sizeof(lanes));
    Fold<kColumns>(lanes);
    to[row] = lanes[0];
  }
}

// Implements Kernels::transpose.
void TransposeRows(const float* const* rows, std::int32_t count, std::int32_t size,
                   std::int32_t block, float* to) {
  std::int32_t k = 0;
  for (; count == kColumns && block == kColumns && k + kLanes <= size; k += kLanes) {
    for (int v = 0; v < kColumns; v += kLanes) {
      Floats some[kLanes];
      LoadTransposed([=](int i) { return rows[v + i] + k; }, some);
      for (int i = 0; i < kLanes; ++i) Store(to + (k + i) * kColumns + v, some[i]);
    }
  }
  for (std::int32_t r = 0; r < count; ++r) {
    for (std::int32_t rest = k; rest < size; ++rest) to[rest * block + r] = rows[r][rest];
  }
}

}  // namespace
}  // namespace ROLLOUTS_POLICY_TARGET
}  // namespace rollouts::policy
