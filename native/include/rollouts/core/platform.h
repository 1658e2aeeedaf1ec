// SPDX-License-Identifier: Apache-2.0
// Differences between a host compiler and NVRTC, in one place. Environment
// headers include this (through env.h) and contain no #ifdef of their own.
#pragma once

#if defined(__CUDACC_RTC__)

#define ROLLOUTS_HD __host__ __device__
// For host and device as well, but never inlined, so that a kernel contains the code once.
#define ROLLOUTS_NOINLINE __host__ __device__ __noinline__
// Empty, because it serves only the host's vector instructions.
#define ROLLOUTS_FLATTEN
#define ROLLOUTS_INLINE __host__ __device__ __forceinline__
#define ROLLOUTS_IVDEP
// NVRTC has no standard headers: these are the only std names that
// environment headers may use.
namespace std {
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using size_t = decltype(sizeof(0));
}  // namespace std

#else

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define ROLLOUTS_HD __host__ __device__
#else
#define ROLLOUTS_HD
#endif
#define ROLLOUTS_NOINLINE ROLLOUTS_HD
// Inlines all that the function calls.
#define ROLLOUTS_FLATTEN __attribute__((flatten))
// Inlined into its caller, and so compiled for the caller's instruction set and loops.
#define ROLLOUTS_INLINE [[gnu::always_inline]] ROLLOUTS_HD inline
// Marks a loop whose iterations do not depend on each other, because the compiler must assume that
// arrays overlap.
#define ROLLOUTS_IVDEP _Pragma("GCC ivdep")

#endif

namespace rollouts {

// Tells if this is compiled as a kernel, for a GPU or for a CPU that emulates one: one thread then
// runs each loop, and nothing vectorises it.
#if defined(ROLLOUTS_KERNEL) || defined(__CUDACC_RTC__)
inline constexpr bool kInKernel = true;
#else
inline constexpr bool kInKernel = false;
#endif

// The compiler's built-in copy and fill of memory, which have other names in NVRTC.
#if defined(__CUDACC_RTC__)
__device__ inline void CopyBytes(void* to, const void* from, std::size_t size) { memcpy(to, from, size); }
__device__ inline void FillBytes(void* to, int byte, std::size_t size) { memset(to, byte, size); }
#else
ROLLOUTS_HD inline void CopyBytes(void* to, const void* from, std::size_t size) {
  __builtin_memcpy(to, from, size);
}
ROLLOUTS_HD inline void FillBytes(void* to, int byte, std::size_t size) {
  __builtin_memset(to, byte, size);
}
#endif

// Arithmetic type of the dynamics: double on the CPU, where the Gymnasium
// references compute in double; float on the GPU, where double is slow.
// -DROLLOUTS_REAL=float builds the GPU's arithmetic for the host (parity tests).
#if defined(ROLLOUTS_REAL)
using Real = ROLLOUTS_REAL;
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
using Real = float;
#else
using Real = double;
#endif

}  // namespace rollouts
