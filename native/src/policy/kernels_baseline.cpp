// SPDX-License-Identifier: Apache-2.0
// The kernels for every machine of this architecture. On x86-64 they have no fused multiply-add,
// which is emulated, exactly and slowly.
#include "kernels_of.h"
#include "rollouts/policy/backward_loops.h"
#include "rollouts/policy/head_loops.h"
#include "rollouts/policy/layer_loops.h"
#include "rollouts/policy/linear_tiles.h"
#include "rollouts/policy/loss_loops.h"
#include "rollouts/policy/optimizer_loops.h"
#include "rollouts/policy/packing_loops.h"

namespace rollouts::policy {

const Kernels* BaselineKernels() {
#if defined(__SSE2__) && !defined(__FMA__)
  static constexpr Kernels kKernels{"emulated", Forward, ForwardGroups, Backward,
                                    Ppo, DensityOfActions, StepWeights, MoveWeights,
                                    IsFinite, SumSquares, AddLanes, TransposeRows, Act};
#else
  static constexpr Kernels kKernels{"baseline", Forward, ForwardGroups, Backward,
                                    Ppo, DensityOfActions, StepWeights, MoveWeights,
                                    IsFinite, SumSquares, AddLanes, TransposeRows, Act};
#endif
  return &kKernels;
}

}  // namespace rollouts::policy
