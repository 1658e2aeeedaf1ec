// SPDX-License-Identifier: Apache-2.0
// dm_control's soft indicator of whether a number is within bounds (utils/rewards.py).
#pragma once

#include "rollouts/core/math.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts::dmc {

inline constexpr double kInf = kInfinity;

// Shapes of the reward's decrease outside the bounds; only those that tasks use.
enum class Sigmoid {
  kGaussian,
  kLongTail,
  kReciprocal,
  kLinear,
  kQuadratic,
};

// 1 at x = 0, `at_1` at x = 1. `at_1` is in (0, 1), or [0, 1) for linear and quadratic.
ROLLOUTS_HD inline double SigmoidOf(double x, double at_1, Sigmoid sigmoid) {
  switch (sigmoid) {
    case Sigmoid::kGaussian: {
      const double scaled = x * Sqrt(-2 * Log(at_1));
      return Exp(-0.5 * (scaled * scaled));
    }
    case Sigmoid::kLongTail: {
      const double scaled = x * Sqrt(1 / at_1 - 1);
      return 1 / (scaled * scaled + 1);
    }
    case Sigmoid::kReciprocal: return 1 / (Abs(x) * (1 / at_1 - 1) + 1);
    case Sigmoid::kLinear: {
      const double scaled = x * (1 - at_1);
      return Abs(scaled) < 1 ? 1 - scaled : 0;
    }
    case Sigmoid::kQuadratic: {
      const double scaled = x * Sqrt(1 - at_1);
      return Abs(scaled) < 1 ? 1 - scaled * scaled : 0;
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
ROLLOUTS_HD inline double Tolerance(double x, Bounds bounds, double margin = 0,
                                    Sigmoid sigmoid = Sigmoid::kGaussian,
                                    double value_at_margin = 0.1) {
  if (bounds.lower <= x && x <= bounds.upper) return 1;
  if (margin == 0) return 0;
  const double outside = x < bounds.lower ? bounds.lower - x : x - bounds.upper;
  return SigmoidOf(outside / margin, value_at_margin, sigmoid);
}

// np.mean(tolerance(controls, margin=1, value_at_margin=0, sigmoid='quadratic')): 1 without
// controls, 0 where all are at a bound of -1 or 1.
template <typename Number>
ROLLOUTS_HD double SmallControl(const Number* controls, std::int32_t count) {
  // in NumPy's order, so that rewards equal dm_control's bit for bit
  const double sum = mujoco::PairwiseSum<double>(
      [&](std::int32_t i) { return Tolerance(controls[i], {}, 1, Sigmoid::kQuadratic, 0); }, 0,
      count);
  return sum / count;
}

}  // namespace rollouts::dmc
