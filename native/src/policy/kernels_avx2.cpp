// SPDX-License-Identifier: Apache-2.0
// The kernels for AVX2 and FMA (x86-64-v3).
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(ROLLOUTS_BASELINE)
// the standard library's headers come first, because their code must not be compiled for a wider
// set
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#define ROLLOUTS_POLICY_TARGET avx2
#define ROLLOUTS_POLICY_LANES 8
#pragma GCC target("avx2,fma")
#include "kernels_of.h"
#include "rollouts/policy/backward_loops.h"
#include "rollouts/policy/head_loops.h"
#include "rollouts/policy/layer_loops.h"
#include "rollouts/policy/linear_tiles.h"
#include "rollouts/policy/loss_loops.h"
#include "rollouts/policy/optimizer_loops.h"
#include "rollouts/policy/packing_loops.h"

namespace rollouts::policy {

const Kernels* Avx2Kernels() {
  static constexpr Kernels kKernels{"avx2", Forward, ForwardGroups, Backward,
                                    Ppo, DensityOfActions, StepWeights, MoveWeights,
                                    IsFinite, SumSquares, AddLanes, TransposeRows, Act};
  return &kKernels;
}

}  // namespace rollouts::policy
#else
#include "kernels_of.h"

namespace rollouts::policy {

const Kernels* Avx2Kernels() { return nullptr; }

}  // namespace rollouts::policy
#endif
