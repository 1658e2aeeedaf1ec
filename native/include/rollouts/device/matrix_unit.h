// SPDX-License-Identifier: Apache-2.0
// Products of small matrices, computed by a warp: on a GPU by tensor cores, on the host by loops
// with the same mapping of elements to threads. Operands are bfloat16. Products of elements are
// exact, and are added in float32.
#pragma once

#include "rollouts/device/grid.h"
#include "rollouts/device/numbers.h"

namespace rollouts {

// One thread's part of each matrix of a product, as PTX lays out `mma.m16n8k16` ("Matrix Fragments
// for mma.m16n8k16 with floating point type"). A word holds two elements that are adjacent in k,
// the first of them in its lower half. `lane` is the thread's place in its warp.
struct MatrixA {  // (16, 16), element (row, k)
  std::uint32_t word[4];
};
struct MatrixB {  // (16, 8), element (k, column)
  std::uint32_t word[2];
};
struct MatrixC {  // (16, 8), element (row, column)
  float sum[4];
};

// The row and column of each sum (MatrixC) in a thread's part; for each word of a MatrixA or
// MatrixB its row or column, and the k of its first element.
ROLLOUTS_HD constexpr std::int32_t RowOfA(std::int32_t lane, std::int32_t word) {
  return lane / 4 + word % 2 * 8;
}
ROLLOUTS_HD constexpr std::int32_t FirstKOfA(std::int32_t lane, std::int32_t word) {
  return lane % 4 * 2 + word / 2 * 8;
}
ROLLOUTS_HD constexpr std::int32_t FirstKOfB(std::int32_t lane, std::int32_t word) {
  return lane % 4 * 2 + word * 8;
}
ROLLOUTS_HD constexpr std::int32_t ColumnOfB(std::int32_t lane) { return lane / 4; }
ROLLOUTS_HD constexpr std::int32_t RowOfC(std::int32_t lane, std::int32_t sum) {
  return lane / 4 + sum / 2 * 8;
}
ROLLOUTS_HD constexpr std::int32_t ColumnOfC(std::int32_t lane, std::int32_t sum) {
  return lane % 4 * 2 + sum % 2;
}

#if defined(__CUDACC_RTC__)

// Rounds two numbers to bfloat16, ties to even, and returns them in one word.
__device__ inline std::uint32_t PairOf(float first, float second) {
  std::uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}

// Computes c += a b; `a(thread)`, `b(thread)` and `c(thread)` return a thread's parts.
template <typename A, typename B, typename C>
__device__ inline void MultiplyAdd(const Warp&, A&& a, B&& b, C&& c) {
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const MatrixA& left = a(thread);
  const MatrixB& right = b(thread);
  MatrixC& to = c(thread);
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(to.sum[0]), "+f"(to.sum[1]), "+f"(to.sum[2]), "+f"(to.sum[3])
      : "r"(left.word[0]), "r"(left.word[1]), "r"(left.word[2]), "r"(left.word[3]),
        "r"(right.word[0]), "r"(right.word[1]));
}

// Begins to copy 16 bytes from global memory to shared memory, without registers in between.
__device__ inline void BeginCopy(uint4* to, const uint4* from) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}
// Waits until all copies that this thread began are complete.
__device__ inline void WaitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

#else

struct alignas(16) uint4 {
  std::uint32_t x, y, z, w;
};

inline std::uint32_t PairOf(float first, float second) {
  return NumberAs<BFloat16>::Of(first).bits |
         std::uint32_t{NumberAs<BFloat16>::Of(second).bits} << 16;
}

inline float NumberOf(std::uint32_t word, std::int32_t half) {
  return __builtin_bit_cast(float, half ? word & 0xFFFF0000u : word << 16);
}

template <typename A, typename B, typename C>
inline void MultiplyAdd(const Warp& warp, A&& a, B&& b, C&& c) {
  float left[16][16], right[16][8];
  warp.EachThread([&](std::int32_t thread) {
    const std::int32_t lane = thread - warp.first();
    for (std::int32_t half = 0; half < 2; ++half) {
      for (std::int32_t w = 0; w < 4; ++w) {
        left[RowOfA(lane, w)][FirstKOfA(lane, w) + half] = NumberOf(a(thread).word[w], half);
      }
      for (std::int32_t w = 0; w < 2; ++w) {
        right[FirstKOfB(lane, w) + half][ColumnOfB(lane)] = NumberOf(b(thread).word[w], half);
      }
    }
  });
  warp.EachThread([&](std::int32_t thread) {
    const std::int32_t lane = thread - warp.first();
    for (std::int32_t s = 0; s < 4; ++s) {
      const std::int32_t row = RowOfC(lane, s), column = ColumnOfC(lane, s);
      for (std::int32_t k = 0; k < 16; ++k) c(thread).sum[s] += left[row][k] * right[k][column];
    }
  });
}

inline void BeginCopy(uint4* to, const uint4* from) { *to = *from; }
inline void WaitForCopies() {}

#endif

}  // namespace rollouts
