// SPDX-License-Identifier: Apache-2.0
// Checks, sums and packing of whole arrays, in loops compiled once for each instruction set; the
// including file has chosen one.
#pragma once

#include "rollouts/policy/backward_loops.h"

namespace rollouts::policy {
inline namespace ROLLOUTS_POLICY_TARGET {
namespace {

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
  float left = 0;
  for (; i < size; ++i) left += values[i] * 0.0f;
  const Floats sum = sums[0] + sums[1] + (sums[2] + sums[3]);
  for (int lane = 0; lane < kLanes; ++lane) left += sum[lane];
  return left == 0.0f;
}

// Implements Kernels::sum_squares.
double SumSquares(std::int64_t size, const float* values) {
  constexpr int kHalf = kLanes / 2, kSums = kColumns / kHalf;
  typedef float HalfFloats __attribute__((vector_size(4 * kHalf)));
  typedef double Doubles __attribute__((vector_size(8 * kHalf)));
  Doubles sums[kSums];
  for (int s = 0; s < kSums; ++s) sums[s] = Doubles{};
  std::int64_t i = 0;
  for (; i + kColumns <= size; i += kColumns) {
    for (int s = 0; s < kSums; ++s) {
      HalfFloats some;
      __builtin_memcpy(&some, values + i + s * kHalf, sizeof(some));
      // a product of two floats is exact in double, so that fusing changes nothing
      const Doubles each = __builtin_convertvector(some, Doubles);
      sums[s] += each * each;
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

// Implements Kernels::add_lanes. Rows are rearranged by lane, so that each vector holds the sums of
// as many rows.
void AddLanes(const float* from, std::int64_t rows, float* to) {
  std::int64_t row = 0;
  for (; row + kLanes <= rows; row += kLanes) {
    Floats lanes[kColumns];
    for (int v = 0; v < kColumns; v += kLanes) {
      Floats some[kLanes];
      for (int i = 0; i < kLanes; ++i) some[i] = Load(from + (row + i) * kColumns + v);
      Swap<kLanes / 2>(some);
      for (int i = 0; i < kLanes; ++i) lanes[v + i] = some[i];
    }
    Fold<kColumns>(lanes);
    Store(to + row, lanes[0]);
  }
  for (; row < rows; ++row) {
    float lanes[kColumns];
    __builtin_memcpy(lanes, from + row * kColumns, sizeof(lanes));
    Fold<kColumns>(lanes);
    to[row] = lanes[0];
  }
}

// Implements Kernels::pack.
void PackBlock(const float* matrix, std::int32_t outputs, std::int32_t inputs, std::int32_t block,
               float* to) {
  std::int32_t k = 0;
  for (; outputs == kColumns && block == kColumns && k + kLanes <= inputs; k += kLanes) {
    for (int v = 0; v < kColumns; v += kLanes) {
      Floats rows[kLanes];
      for (int i = 0; i < kLanes; ++i) rows[i] = Load(matrix + std::int64_t{v + i} * inputs + k);
      Swap<kLanes / 2>(rows);
      for (int i = 0; i < kLanes; ++i) Store(to + (k + i) * kColumns + v, rows[i]);
    }
  }
  for (std::int32_t o = 0; o < outputs; ++o) {
    const float* row = matrix + std::int64_t{o} * inputs;
    for (std::int32_t rest = k; rest < inputs; ++rest) to[rest * block + o] = row[rest];
  }
}

}  // namespace
}  // namespace ROLLOUTS_POLICY_TARGET
}  // namespace rollouts::policy
