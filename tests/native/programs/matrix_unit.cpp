// SPDX-License-Identifier: Apache-2.0
// Products of matrices by a warp of the host, whose elements lie where PTX says, beside plain loops.
// The formulas of `element` are those of the PTX ISA, "Matrix Fragments for mma.m16n8k16 with
// floating point type"; those of matrix_unit.h are by words.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "rollouts/core/rng.h"
#include "rollouts/device/matrix_unit.h"

namespace {

using namespace rollouts;

void Require(bool holds, const char* what) {
  if (holds) return;
  std::printf("%s\n", what);
  std::exit(1);
}

struct Place {
  int row, column;
};

Place ElementOfA(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  const bool is_upper = (0 <= i && i < 2) || (4 <= i && i < 6);
  return {is_upper ? group : group + 8, in_group * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}

Place ElementOfB(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {in_group * 2 + (i & 1) + (i < 2 ? 0 : 8), group};
}

Place ElementOfC(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {i < 2 ? group : group + 8, in_group * 2 + (i & 1)};
}

// Whole numbers are exact, and so are their sums.
void MultiplyWholeNumbers(bool backwards) {
  const Block block(0, 64, backwards);
  OfThreads<MatrixA> a(block);
  OfThreads<MatrixB> b(block);
  OfThreads<MatrixC> c(block);
  std::vector<int> left(2 * 256), right(2 * 128), sums(2 * 128);
  Rng rng(7, 0, 0);
  for (int& one : left) one = static_cast<int>(rng.Below(255)) - 127;
  for (int& one : right) one = static_cast<int>(rng.Below(255)) - 127;
  for (int& one : sums) one = static_cast<int>(rng.Below(1000));
  for (int thread = 0; thread < 64; ++thread) {
    const int lane = thread % 32, warp = thread / 32;
    const auto element = [&](const std::vector<int>& of, int columns, Place at) {
      return static_cast<float>(of[warp * 16 * columns + at.row * columns + at.column]);
    };
    for (int w = 0; w < 4; ++w) {
      a[thread].word[w] = PairOf(element(left, 16, ElementOfA(lane, 2 * w)),
                                 element(left, 16, ElementOfA(lane, 2 * w + 1)));
    }
    for (int w = 0; w < 2; ++w) {
      b[thread].word[w] = PairOf(element(right, 8, ElementOfB(lane, 2 * w)),
                                 element(right, 8, ElementOfB(lane, 2 * w + 1)));
    }
    for (int s = 0; s < 4; ++s) c[thread].sum[s] = element(sums, 8, ElementOfC(lane, s));
  }
  // the second warp alone
  block.EachWarp([](std::int32_t thread) { return thread == 45; },
                 [&](const Warp& warp) {
                   MultiplyAdd(
                       warp, [&](std::int32_t thread) -> MatrixA& { return a[thread]; },
                       [&](std::int32_t thread) -> MatrixB& { return b[thread]; },
                       [&](std::int32_t thread) -> MatrixC& { return c[thread]; });
                 });
  for (int thread = 0; thread < 64; ++thread) {
    const int lane = thread % 32, warp = thread / 32;
    for (int s = 0; s < 4; ++s) {
      const Place at = ElementOfC(lane, s);
      int expected = sums[warp * 128 + at.row * 8 + at.column];
      for (int k = 0; warp == 1 && k < 16; ++k) {
        expected += left[256 + at.row * 16 + k] * right[128 + k * 8 + at.column];
      }
      Require(c[thread].sum[s] == static_cast<float>(expected), "a sum is another one");
    }
  }
}

// A layer's sums become the next one's inputs where they lie: dense_forward.h relies on it.
void SumsLieWhereInputsDo() {
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 8; ++i) {
      // matrix i / 4 of two that follow each other in columns
      const Place sum = ElementOfC(lane, i % 4), input = ElementOfA(lane, i);
      Require(sum.row == input.row && sum.column + i / 4 * 8 == input.column, "sums lie elsewhere");
    }
  }
}

void RoundToEven() {
  // 1 + 2^-8 is half way between 1 and the next bfloat16, and 1 + 3 * 2^-8 half way above that
  Require(PairOf(1.00390625f, 1.01171875f) == 0x3F823F80u, "a half is not rounded to even");
  Require(PairOf(1.0039064f, -1.0039064f) == 0xBF813F81u, "more than a half is not rounded up");
}

}  // namespace

int main() {
  MultiplyWholeNumbers(false);
  MultiplyWholeNumbers(true);
  SumsLieWhereInputsDo();
  RoundToEven();
}
