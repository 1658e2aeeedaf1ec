// SPDX-License-Identifier: Apache-2.0
// The loops for AVX-512.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>

#include <cstdint>
#include <initializer_list>

#include "loops.h"
#include "model.h"

#define LANES_TARGET avx512
#define LANES_WIDEST 8
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")
#include "loops_of.h"

namespace rollouts::lanes {

const Loops* Avx512Loops() { return &avx512::LoopsOf<8>::kLoops; }

}  // namespace rollouts::lanes
#else
#include "loops.h"

namespace rollouts::lanes {

const Loops* Avx512Loops() { return nullptr; }

}  // namespace rollouts::lanes
#endif
