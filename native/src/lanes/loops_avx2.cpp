// SPDX-License-Identifier: Apache-2.0
// The loops for AVX2 and FMA: for four simulations at once, and for one.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>

#include <cstdint>
#include <initializer_list>

#include "loops.h"
#include "model.h"

#define LANES_TARGET avx2
#define LANES_WIDEST 4
#pragma GCC target("avx2,fma")
#include "loops_of.h"

namespace rollouts::lanes {

const Loops* Avx2Loops() { return &avx2::LoopsOf<4>::kLoops; }
const Loops* Avx2SingleLoops() { return &avx2::LoopsOf<1>::kLoops; }

}  // namespace rollouts::lanes
#else
#include "loops.h"

namespace rollouts::lanes {

const Loops* Avx2Loops() { return nullptr; }
const Loops* Avx2SingleLoops() { return nullptr; }

}  // namespace rollouts::lanes
#endif
