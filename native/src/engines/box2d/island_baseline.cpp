// SPDX-License-Identifier: Apache-2.0
// The kernel for the instruction set that all other code is compiled for.
#define ROLLOUTS_ISLAND_LANES 4
#include "island_kernel.h"

namespace rollouts {

const IslandKernel* BaselineIslandKernel() {
  static constexpr IslandKernel kKernel{"baseline", ROLLOUTS_ISLAND_LANES, SolveAll};
  return &kKernel;
}

}  // namespace rollouts
