// SPDX-License-Identifier: Apache-2.0
// Vectors of floats as wide as the instruction set that the including file is compiled for. The
// results of a lane are the same for every width: operations are those of IEEE 754, a fused
// multiply-add is fused everywhere, and nothing is added across lanes.
//
// A file that is compiled for a wider instruction set than the library's defines two macros.
// ROLLOUTS_POLICY_TARGET gives the functions that it inlines names of their own, so that the linker
// never mixes two widths. ROLLOUTS_POLICY_LANES is the width, because the compiler's own macros do
// not follow `#pragma GCC target` where the preprocessor runs separately, as with ccache.
#pragma once

#include "rollouts/core/platform.h"

#if !defined(ROLLOUTS_KERNEL)
#include <cmath>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif
#endif

#if !defined(ROLLOUTS_POLICY_TARGET)
#define ROLLOUTS_POLICY_TARGET baseline
#define ROLLOUTS_POLICY_LANES 4
#endif

namespace rollouts::policy {
inline namespace ROLLOUTS_POLICY_TARGET {

#if defined(ROLLOUTS_KERNEL)

// one thread computes one column
inline constexpr int kLanes = 1;
using Floats = float;
using Ints = std::int32_t;
using Mask = bool;
#if defined(__CUDACC_RTC__)
__device__ inline Floats Fma(Floats a, Floats b, Floats c) { return fmaf(a, b, c); }
__device__ inline Floats Sqrt(Floats x) { return sqrtf(x); }
// The steps of a division, without its branch for numbers that are not normal.
__device__ inline Floats Quotient(Floats a, Floats b) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  inverse = fmaf(inverse, fmaf(-b, inverse, 1.0f), inverse);
  const float nearly = a * inverse;
  return fmaf(fmaf(-b, nearly, a), inverse, nearly);
}
#else
inline Floats Fma(Floats a, Floats b, Floats c) { return __builtin_fmaf(a, b, c); }
inline Floats Sqrt(Floats x) { return __builtin_sqrtf(x); }
inline Floats Quotient(Floats a, Floats b) { return a / b; }
#endif
ROLLOUTS_HD inline Floats Splat(float value) { return value; }
ROLLOUTS_HD inline Ints ToInts(Floats x) { return static_cast<Ints>(x); }
ROLLOUTS_HD inline Floats ToFloats(Ints x) { return static_cast<Floats>(x); }

#else

inline constexpr int kLanes = ROLLOUTS_POLICY_LANES;
typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t Ints __attribute__((vector_size(4 * kLanes)));
using Mask = Ints;  // all bits of a lane, or none

#if ROLLOUTS_POLICY_LANES == 16
inline Floats Fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
// masked, because GCC 12 warns that the plain intrinsics leave lanes undefined
inline constexpr __mmask16 kAllLanes = 0xFFFF;
inline Floats Sqrt(Floats x) { return _mm512_maskz_sqrt_ps(kAllLanes, x); }
inline Floats Splat(float value) { return _mm512_set1_ps(value); }
#elif ROLLOUTS_POLICY_LANES == 8
inline Floats Fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Floats Sqrt(Floats x) { return _mm256_sqrt_ps(x); }
inline Floats Splat(float value) { return _mm256_set1_ps(value); }
#elif defined(__ARM_NEON)
inline Floats Fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
inline Floats Sqrt(Floats x) { return vsqrtq_f32(x); }
inline Floats Splat(float value) { return vdupq_n_f32(value); }
#elif defined(__SSE2__)
// Fma on a machine without the instruction. The product is exact in double; the sum is rounded to
// odd there, so that rounding it once more, to float, gives what one rounding would have given
// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
typedef std::int64_t Signs __attribute__((vector_size(16)));
inline __m128d SumToOdd(__m128d product, __m128d addend) {
  const __m128d sum = product + addend;
  const __m128d back = sum - product;
  const __m128d error = (product - (sum - back)) + (addend - back);
  // an even last bit of an inexact sum moves towards the exact one
  const Signs above = error > 0.0;
  const Signs below = error < 0.0;
  const Signs positive = sum > 0.0;
  const Signs outward = (above & positive) | (below & ~positive);
  const Signs bits = (Signs)sum;
  const Signs step = (outward & 1) | ~outward;
  return (__m128d)(bits + (step & (above | below) & ((bits & 1) - 1)));
}
inline Floats Fma(Floats a, Floats b, Floats c) {
  const __m128d low = SumToOdd(_mm_cvtps_pd(a) * _mm_cvtps_pd(b), _mm_cvtps_pd(c));
  const __m128d high = SumToOdd(
      _mm_cvtps_pd(_mm_movehl_ps(a, a)) * _mm_cvtps_pd(_mm_movehl_ps(b, b)),
      _mm_cvtps_pd(_mm_movehl_ps(c, c)));
  return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
}
inline Floats Sqrt(Floats x) { return _mm_sqrt_ps(x); }
inline Floats Splat(float value) { return _mm_set1_ps(value); }
#else
inline Floats Fma(Floats a, Floats b, Floats c) {
  for (int i = 0; i < kLanes; ++i) a[i] = std::fma(a[i], b[i], c[i]);
  return a;
}
inline Floats Sqrt(Floats x) {
  for (int i = 0; i < kLanes; ++i) x[i] = std::sqrt(x[i]);
  return x;
}
inline Floats Splat(float value) { return Floats{} + value; }
#endif

// Half as many lanes of doubles.
inline constexpr int kDoubles = kLanes / 2;
typedef double Doubles __attribute__((vector_size(4 * kLanes)));
// The squares of floats are exact in double, so that fusing changes no bit.
#if ROLLOUTS_POLICY_LANES == 16
inline Doubles AddSquares(Doubles x, Doubles sum) { return _mm512_fmadd_pd(x, x, sum); }
inline Doubles LoadDoubles(const float* from) {
  return _mm512_maskz_cvtps_pd(0xFF, _mm256_loadu_ps(from));
}
#elif ROLLOUTS_POLICY_LANES == 8
inline Doubles AddSquares(Doubles x, Doubles sum) { return _mm256_fmadd_pd(x, x, sum); }
inline Doubles LoadDoubles(const float* from) { return _mm256_cvtps_pd(_mm_loadu_ps(from)); }
#else
inline Doubles AddSquares(Doubles x, Doubles sum) { return x * x + sum; }
inline Doubles LoadDoubles(const float* from) {
  typedef float Half __attribute__((vector_size(2 * kLanes)));
  Half some;
  __builtin_memcpy(&some, from, sizeof(some));
  return __builtin_convertvector(some, Doubles);
}
#endif

// a / b, where b is from 1 to 2^30 and not less than a.
inline Floats Quotient(Floats a, Floats b) { return a / b; }
inline Ints ToInts(Floats x) { return __builtin_convertvector(x, Ints); }
inline Floats ToFloats(Ints x) { return __builtin_convertvector(x, Floats); }

// Half as many lanes of twice the bits. A product multiplies the low halves.
inline constexpr int kLongs = kLanes / 2;
typedef std::uint64_t Longs __attribute__((vector_size(4 * kLanes)));
#if ROLLOUTS_POLICY_LANES == 16
inline Longs LowProduct(Longs a, Longs b) {
  return (Longs)_mm512_maskz_mul_epu32(0xFF, (__m512i)a, (__m512i)b);
}
#elif ROLLOUTS_POLICY_LANES == 8
inline Longs LowProduct(Longs a, Longs b) {
  return (Longs)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
#elif defined(__SSE2__)
inline Longs LowProduct(Longs a, Longs b) { return (Longs)_mm_mul_epu32((__m128i)a, (__m128i)b); }
#else
inline Longs LowProduct(Longs a, Longs b) { return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu); }
#endif
inline Longs LoadLongs(const std::uint32_t* from) {
  typedef std::uint32_t Words __attribute__((vector_size(2 * kLanes)));
  Words words;
  __builtin_memcpy(&words, from, sizeof(words));
  return __builtin_convertvector(words, Longs);
}
inline void StoreLow(std::uint32_t* to, Longs x) {
  typedef std::uint32_t Words __attribute__((vector_size(2 * kLanes)));
  const Words words = __builtin_convertvector(x, Words);
  __builtin_memcpy(to, &words, sizeof(words));
}

#endif

ROLLOUTS_HD inline Floats FloatBits(Ints bits) { return __builtin_bit_cast(Floats, bits); }
ROLLOUTS_HD inline Ints IntBits(Floats x) { return __builtin_bit_cast(Ints, x); }
ROLLOUTS_HD inline Floats Select(Mask mask, Floats yes, Floats no) { return mask ? yes : no; }
ROLLOUTS_HD inline Ints SelectInts(Mask mask, Ints yes, Ints no) { return mask ? yes : no; }
// A NaN in `x` stays NaN. x86-64's minimum is `limit < x ? limit : x`, but compilers do not see
// that.
#if !defined(ROLLOUTS_KERNEL) && ROLLOUTS_POLICY_LANES == 16
inline Floats AtMost(Floats x, Floats limit) { return _mm512_maskz_min_ps(kAllLanes, limit, x); }
inline Floats AtLeast(Floats x, Floats limit) { return _mm512_maskz_max_ps(kAllLanes, limit, x); }
#elif !defined(ROLLOUTS_KERNEL) && ROLLOUTS_POLICY_LANES == 8
inline Floats AtMost(Floats x, Floats limit) { return _mm256_min_ps(limit, x); }
inline Floats AtLeast(Floats x, Floats limit) { return _mm256_max_ps(limit, x); }
#else
ROLLOUTS_HD inline Floats AtMost(Floats x, Floats limit) { return Select(x > limit, limit, x); }
ROLLOUTS_HD inline Floats AtLeast(Floats x, Floats limit) { return Select(x < limit, limit, x); }
#endif
ROLLOUTS_HD inline Floats Abs(Floats x) { return FloatBits(IntBits(x) & 0x7FFFFFFF); }
// |x| with the sign of `sign`.
ROLLOUTS_HD inline Floats WithSign(Floats x, Floats sign) {
  return FloatBits((IntBits(x) & 0x7FFFFFFF) |
                   (IntBits(sign) & static_cast<std::int32_t>(0x80000000)));
}
// The nearest whole number, ties to even; |x| < 2^22.
ROLLOUTS_HD inline Floats Round(Floats x) {
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it leaves no bits for a fraction
  return (x + kRounder) - kRounder;
}

#if defined(ROLLOUTS_KERNEL)
ROLLOUTS_HD inline Floats Load(const float* from) { return *from; }
ROLLOUTS_HD inline void Store(float* to, Floats x) { *to = x; }
ROLLOUTS_HD inline Ints LoadInts(const std::uint32_t* from) { return static_cast<Ints>(*from); }
ROLLOUTS_HD inline void StoreInts(std::int32_t* to, Ints x) { *to = x; }
#else
inline Floats Load(const float* from) {
  Floats x;
  __builtin_memcpy(&x, from, sizeof(x));
  return x;
}
inline void Store(float* to, Floats x) { __builtin_memcpy(to, &x, sizeof(x)); }
// A vector whose first half begins at `low` and whose second at `high`.
#if ROLLOUTS_POLICY_LANES == 16
inline Floats LoadHalves(const float* low, const float* high) {
  const __m512 first = _mm512_castps256_ps512(_mm256_loadu_ps(low));
  return _mm512_insertf32x8(first, _mm256_loadu_ps(high), 1);
}
#elif ROLLOUTS_POLICY_LANES == 8
inline Floats LoadHalves(const float* low, const float* high) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}
#else
inline Floats LoadHalves(const float* low, const float* high) {
  return Floats{low[0], low[1], high[0], high[1]};
}
#endif
inline Ints LoadInts(const std::uint32_t* from) {
  Ints x;
  __builtin_memcpy(&x, from, sizeof(x));
  return x;
}
inline void StoreInts(std::int32_t* to, Ints x) { __builtin_memcpy(to, &x, sizeof(x)); }
#endif

}  // namespace ROLLOUTS_POLICY_TARGET
}  // namespace rollouts::policy
