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
#else
inline float Sin(float x) { return std::sin(x); }
inline double Sin(double x) { return std::sin(x); }
inline float Cos(float x) { return std::cos(x); }
inline double Cos(double x) { return std::cos(x); }
inline float Floor(float x) { return std::floor(x); }
inline double Floor(double x) { return std::floor(x); }
inline float Fmod(float x, float y) { return std::fmod(x, y); }
inline double Fmod(double x, double y) { return std::fmod(x, y); }
#endif

template <typename T>
ROLLOUTS_HD constexpr T Clip(T x, T low, T high) {
  return x < low ? low : (x > high ? high : x);
}

// x modulo y with the sign of y, as Python's and NumPy's `%`.
template <typename T>
ROLLOUTS_HD inline T PythonMod(T x, T y) {
  T remainder = Fmod(x, y);
  if (remainder != 0 && (remainder < 0) != (y < 0)) remainder += y;
  return remainder;
}

}  // namespace rollouts
