// SPDX-License-Identifier: Apache-2.0
// The loops for any machine: for two simulations at once (SSE2, NEON), and for one.
#include <cstdint>
#include <initializer_list>

#include "loops.h"
#include "model.h"

#define LANES_TARGET baseline
#define LANES_WIDEST 2
#include "loops_of.h"

namespace rollouts::lanes {

const Loops* PairLoops() { return &baseline::LoopsOf<2>::kLoops; }
const Loops* SingleLoops() { return &baseline::LoopsOf<1>::kLoops; }

}  // namespace rollouts::lanes
