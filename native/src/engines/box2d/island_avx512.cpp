// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <cstdint>

#pragma GCC target("avx2,avx512f,avx512dq,avx512vl,avx512bw")
#define ROLLOUTS_ISLAND_LANES 16
#include "island_kernel.h"

namespace rollouts {

const IslandKernel* Avx512IslandKernel() {
  static constexpr IslandKernel kKernel{"avx512", ROLLOUTS_ISLAND_LANES, SolveAll};
  return &kKernel;
}

}  // namespace rollouts
#else
#include "island_block.h"

namespace rollouts {

const IslandKernel* Avx512IslandKernel() { return nullptr; }

}  // namespace rollouts
#endif
