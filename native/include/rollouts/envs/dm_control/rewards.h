// SPDX-License-Identifier: Apache-2.0
// dm_control's soft indicator of a number within bounds (utils/rewards.py).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "rollouts/core/math.h"

namespace rollouts::dmc {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

// Shapes in which the reward falls outside the bounds.
enum class Sigmoid {
  kGaussian,
  kHyperbolic,
  kLongTail,
  kReciprocal,
  kCosine,
  kLinear,
  kQuadratic,
  kTanhSquared,
};

// 1 at x = 0, `at_1` at x = 1. `at_1` is in (0, 1), or [0, 1) for cosine, linear and quadratic.
inline double SigmoidOf(double x, double at_1, Sigmoid sigmoid) {
  switch (sigmoid) {
    case Sigmoid::kGaussian: {
      const double scaled = x * std::sqrt(-2 * std::log(at_1));
      return std::exp(-0.5 * (scaled * scaled));
    }
    case Sigmoid::kHyperbolic: return 1 / std::cosh(x * std::acosh(1 / at_1));
    case Sigmoid::kLongTail: {
      const double scaled = x * std::sqrt(1 / at_1 - 1);
      return 1 / (scaled * scaled + 1);
    }
    case Sigmoid::kReciprocal: return 1 / (std::abs(x) * (1 / at_1 - 1) + 1);
    case Sigmoid::kCosine: {
      const double scaled = x * (std::acos(2 * at_1 - 1) / kPi);
      return std::abs(scaled) < 1 ? (1 + std::cos(kPi * scaled)) / 2 : 0;
    }
    case Sigmoid::kLinear: {
      const double scaled = x * (1 - at_1);
      return std::abs(scaled) < 1 ? 1 - scaled : 0;
    }
    case Sigmoid::kQuadratic: {
      const double scaled = x * std::sqrt(1 - at_1);
      return std::abs(scaled) < 1 ? 1 - scaled * scaled : 0;
    }
    case Sigmoid::kTanhSquared: {
      const double value = std::tanh(x * std::atanh(std::sqrt(1 - at_1)));
      return 1 - value * value;
    }
  }
  return 0;
}

// Inclusive; either may be infinite.
struct Bounds {
  double lower = 0;
  double upper = 0;
};

// 1 within the bounds; outside 0 where `margin` is 0, else a sigmoid that is `value_at_margin` at
// that distance from the nearest bound.
inline double Tolerance(double x, Bounds bounds, double margin = 0,
                        Sigmoid sigmoid = Sigmoid::kGaussian, double value_at_margin = 0.1) {
  if (bounds.lower <= x && x <= bounds.upper) return 1;
  if (margin == 0) return 0;
  const double outside = x < bounds.lower ? bounds.lower - x : x - bounds.upper;
  return SigmoidOf(outside / margin, value_at_margin, sigmoid);
}

// np.mean(tolerance(controls, margin=1, value_at_margin=0, sigmoid='quadratic')): 1 without
// controls, 0 where all are at a bound of -1 or 1.
double SmallControl(const double* controls, std::int32_t count);

}  // namespace rollouts::dmc
