// SPDX-License-Identifier: Apache-2.0
// The kernels for AVX-512 (x86-64-v4).
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(ROLLOUTS_BASELINE)
// the standard library's headers come first, because their code must not be compiled for a wider
// set
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#define ROLLOUTS_POLICY_TARGET avx512
#define ROLLOUTS_POLICY_LANES 16
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")
#include "kernels_of.h"
#include "rollouts/policy/backward_loops.h"
#include "rollouts/policy/head_loops.h"
#include "rollouts/policy/layer_loops.h"
#include "rollouts/policy/linear_tiles.h"
#include "rollouts/policy/loss_loops.h"
#include "rollouts/policy/optimizer_loops.h"
#include "rollouts/policy/packing_loops.h"

namespace rollouts::policy {
namespace {

// Computes half of the columns where only these are wanted, which is cheaper.
void ForwardOrHalf(const Instruction* instructions, std::int32_t count, const float* params,
                   float* rows, std::int32_t columns) {
  const auto forward = columns <= kColumns / 2 ? Avx2Kernels()->forward : Forward;
  forward(instructions, count, params, rows, columns);
}

}  // namespace

const Kernels* Avx512Kernels() {
  static constexpr Kernels kKernels{"avx512", ForwardOrHalf, ForwardGroups, Backward,
                                    Ppo, DensityOfActions, StepWeights, MoveWeights,
                                    IsFinite, SumSquares, AddLanes, TransposeRows, Act};
  return &kKernels;
}

}  // namespace rollouts::policy
#else
#include "kernels_of.h"

namespace rollouts::policy {

const Kernels* Avx512Kernels() { return nullptr; }

}  // namespace rollouts::policy
#endif
