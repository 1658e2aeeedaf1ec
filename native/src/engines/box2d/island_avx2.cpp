// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <cstdint>

#pragma GCC target("avx2")
#define ROLLOUTS_ISLAND_LANES 8
#include "island_kernel.h"

namespace rollouts {

const IslandKernel* Avx2IslandKernel() {
  static constexpr IslandKernel kKernel{"avx2", ROLLOUTS_ISLAND_LANES, SolveAll};
  return &kKernel;
}

}  // namespace rollouts
#else
#include "island_block.h"

namespace rollouts {

const IslandKernel* Avx2IslandKernel() { return nullptr; }

}  // namespace rollouts
#endif
