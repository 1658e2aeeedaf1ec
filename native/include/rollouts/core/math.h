// SPDX-License-Identifier: Apache-2.0
// Elementary functions for environment headers, the same names on host and device.
#pragma once

#include "rollouts/core/platform.h"

#if !defined(__CUDACC_RTC__)
#include <cmath>
#endif

namespace rollouts {

inline constexpr double kPi = 3.14159265358979323846;
// NVRTC has neither <limits> nor __builtin_huge_val
inline constexpr double kInfinity = __builtin_bit_cast(double, 0x7FF0000000000000ull);

#if defined(__CUDACC_RTC__)
ROLLOUTS_HD inline float Sin(float x) { return sinf(x); }
ROLLOUTS_HD inline double Sin(double x) { return sin(x); }
ROLLOUTS_HD inline float Cos(float x) { return cosf(x); }
ROLLOUTS_HD inline double Cos(double x) { return cos(x); }
ROLLOUTS_HD inline float Floor(float x) { return floorf(x); }
ROLLOUTS_HD inline double Floor(double x) { return floor(x); }
ROLLOUTS_HD inline float Fmod(float x, float y) { return fmodf(x, y); }
ROLLOUTS_HD inline double Fmod(double x, double y) { return fmod(x, y); }
ROLLOUTS_HD inline float Sqrt(float x) { return sqrtf(x); }
ROLLOUTS_HD inline double Sqrt(double x) { return sqrt(x); }
ROLLOUTS_HD inline double Exp(double x) { return exp(x); }
ROLLOUTS_HD inline double Log(double x) { return log(x); }
ROLLOUTS_HD inline double Log1p(double x) { return log1p(x); }
ROLLOUTS_HD inline double Asinh(double x) { return asinh(x); }
ROLLOUTS_HD inline double Tanh(double x) { return tanh(x); }
ROLLOUTS_HD inline double Atan2(double y, double x) { return atan2(y, x); }
ROLLOUTS_HD inline double LibrarySin(double x) { return sin(x); }
ROLLOUTS_HD inline double LibraryCos(double x) { return cos(x); }
// Index of the lowest set bit; x must not be 0.
ROLLOUTS_HD inline std::int32_t LowestBit(std::uint32_t x) { return __ffs(static_cast<int>(x)) - 1; }
ROLLOUTS_HD inline std::int32_t LowestBit(std::uint64_t x) {
  return __ffsll(static_cast<long long>(x)) - 1;
}
#else

namespace math_internal {

// x = quadrant * pi/2 + remainder, |remainder| <= pi/4. pi/2 is split into three parts of 33 bits
// (Cody and Waite), so that quadrant * part is exact while |x| < 1e6; beyond that the remainder
// loses digits.
struct Reduced {
  double remainder;
  std::uint64_t quadrant;  // only its two lowest bits count
};

inline Reduced ReduceByHalfPi(double x) {
  // adding 1.5 * 2^52 rounds to a whole number, which then lies in the lowest bits
  constexpr double kRounder = 6755399441055744.0;
  const double shifted = x * (2 / kPi) + kRounder;
  const double n = shifted - kRounder;
  double r = x - n * 1.57079632673412561417e+00;
  r -= n * 6.07710050630396597660e-11;
  r -= n * 2.02226624879595063154e-21;
  return {r, __builtin_bit_cast(std::uint64_t, shifted)};
}

// Minimax polynomials of fdlibm (Sun Microsystems 1993) on [-pi/4, pi/4].
inline double SinKernel(double r) {
  const double z = r * r;
  const double p =
      8.33333333332248946124e-03 +
      z * (-1.98412698298579493134e-04 +
           z * (2.75573137070700676789e-06 +
                z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)));
  return r + r * z * (-1.66666666666666324348e-01 + z * p);
}

inline double CosKernel(double r) {
  const double z = r * r;
  const double p =
      4.16666666666666019037e-02 +
      z * (-1.38888888888741095749e-03 +
           z * (2.48015872894767294178e-05 +
                z * (-2.75573143513906633035e-07 +
                     z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11))));
  const double half = 0.5 * z;
  const double w = 1 - half;
  return w + (((1 - w) - half) + z * z * p);
}

// Computes both kernels and selects by bits instead of a branch, so that loops over environments
// vectorise and a vector gives the same bits as a single call.
inline double SinOrCos(double x, std::uint64_t quarter_turns) {
  const Reduced reduced = ReduceByHalfPi(x);
  const std::uint64_t quadrant = reduced.quadrant + quarter_turns;
  const std::uint64_t odd = 0 - (quadrant & 1);
  const auto sine = __builtin_bit_cast(std::uint64_t, SinKernel(reduced.remainder));
  const auto cosine = __builtin_bit_cast(std::uint64_t, CosKernel(reduced.remainder));
  const std::uint64_t sign = (quadrant & 2) << 62;
  return __builtin_bit_cast(double, ((sine & ~odd) | (cosine & odd)) ^ sign);
}

}  // namespace math_internal

inline float Sin(float x) { return std::sin(x); }
inline double Sin(double x) { return math_internal::SinOrCos(x, 0); }
inline float Cos(float x) { return std::cos(x); }
inline double Cos(double x) { return math_internal::SinOrCos(x, 1); }
inline float Floor(float x) { return std::floor(x); }
inline double Floor(double x) { return std::floor(x); }
inline float Fmod(float x, float y) { return std::fmod(x, y); }
inline double Fmod(double x, double y) { return std::fmod(x, y); }
inline float Sqrt(float x) { return std::sqrt(x); }
inline double Sqrt(double x) { return std::sqrt(x); }
inline double Exp(double x) { return std::exp(x); }
inline double Log(double x) { return std::log(x); }
inline double Log1p(double x) { return std::log1p(x); }
inline double Asinh(double x) { return std::asinh(x); }
inline double Tanh(double x) { return std::tanh(x); }
inline double Atan2(double y, double x) { return std::atan2(y, x); }
// The C library's functions, for environments that must equal a reference that calls them, bit for
// bit.
inline double LibrarySin(double x) { return std::sin(x); }
inline double LibraryCos(double x) { return std::cos(x); }
inline std::int32_t LowestBit(std::uint32_t x) { return __builtin_ctz(x); }
inline std::int32_t LowestBit(std::uint64_t x) { return __builtin_ctzll(x); }
#endif

ROLLOUTS_HD constexpr double Abs(double x) { return x < 0 ? -x : x; }

template <typename T>
ROLLOUTS_HD constexpr T Clip(T x, T low, T high) {
  return x < low ? low : (x > high ? high : x);
}

// The angle in [-pi, pi] that differs from x by whole turns. Branch-free, unlike
// PythonMod; exact to 2e-16 while |x| < 1e6.
template <typename T>
ROLLOUTS_HD inline T WrapAngle(T x) {
  constexpr T kTurn = static_cast<T>(2 * kPi);
  // 2 pi in two parts, so that turns * part is exact
  constexpr T kHigh = static_cast<T>(sizeof(T) == 8 ? 6.28318530693650245667 : 6.28125);
  constexpr T kLow = static_cast<T>(2 * kPi - static_cast<double>(kHigh));
  // adding 1.5 * 2^(mantissa bits) rounds to a whole number
  constexpr T kRounder = static_cast<T>(sizeof(T) == 8 ? 6755399441055744.0 : 12582912.0);
  const T turns = (x * (1 / kTurn) + kRounder) - kRounder;
  return (x - turns * kHigh) - turns * kLow;
}

// x modulo y with the sign of y, as Python's and NumPy's `%`.
template <typename T>
ROLLOUTS_HD inline T PythonMod(T x, T y) {
  T remainder = Fmod(x, y);
  if (remainder != 0 && (remainder < 0) != (y < 0)) remainder += y;
  return remainder;
}

}  // namespace rollouts
