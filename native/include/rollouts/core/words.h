// SPDX-License-Identifier: Apache-2.0
// Operations on single words that have other names in NVRTC than in host compilers.
#pragma once

#include "rollouts/core/platform.h"

namespace rollouts {

#if defined(__CUDACC_RTC__)
// Number of bits that are set.
__device__ inline std::int32_t CountBits(std::uint32_t x) { return __popc(x); }
// Adds one to a number that other threads of a kernel may increment at the same time; returns its
// former value.
__device__ inline std::int32_t AtomicAddOne(std::int32_t* to) { return atomicAdd(to, 1); }
#else
inline std::int32_t CountBits(std::uint32_t x) { return __builtin_popcount(x); }
inline std::int32_t AtomicAddOne(std::int32_t* to) {
  return __atomic_fetch_add(to, 1, __ATOMIC_RELAXED);
}
#endif

}  // namespace rollouts
