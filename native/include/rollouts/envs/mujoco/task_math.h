// SPDX-License-Identifier: Apache-2.0
// Arithmetic of the MuJoCo tasks, in NumPy's order.
#pragma once

#include "rollouts/core/math.h"
#include "rollouts/core/rng.h"

namespace rollouts::mujoco {

// Sum of term(first), ..., term(first + count - 1) in the order of NumPy's sum of an array: in
// pairs, with eight sums in parallel.
template <typename T, typename Term>
ROLLOUTS_HD T PairwiseSum(const Term& term, std::int32_t first, std::int32_t count) {
  if (count > 128) {
    const std::int32_t half = count / 2 - count / 2 % 8;
    return PairwiseSum<T>(term, first, half) + PairwiseSum<T>(term, first + half, count - half);
  }
  std::int32_t i = 0;
  T sum = 0;
  if (count >= 8) {
    T lane[8];
    for (; i < 8; ++i) lane[i] = term(first + i);
    for (; i < count - count % 8; i += 8) {
      for (std::int32_t j = 0; j < 8; ++j) lane[j] += term(first + i + j);
    }
    sum = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
  }
  for (; i < count; ++i) sum += term(first + i);
  return sum;
}

// np.sum(np.square(values)), in the precision of the values.
template <typename T>
ROLLOUTS_HD T SumOfSquares(const T* values, std::int32_t count) {
  return PairwiseSum<T>([&](std::int32_t i) { return values[i] * values[i]; }, 0, count);
}

// weight * np.sum(np.square(action)): actions are float32, and a Python float times a float32 is
// a float32.
ROLLOUTS_HD inline double ActionCost(double weight, const float* action, std::int32_t count) {
  return static_cast<float>(weight) * SumOfSquares(action, count);
}

// np.linalg.norm of a vector.
template <typename Number>
ROLLOUTS_HD double Norm(const Number* values, std::int32_t count) {
  double sum = 0;
  for (std::int32_t i = 0; i < count; ++i) {
    const double value = values[i];
    sum += value * value;
  }
  return Sqrt(sum);
}
template <typename Number>
ROLLOUTS_HD double Distance(const Number* a, const Number* b) {
  const Number difference[3] = {a[0] - b[0], a[1] - b[1], a[2] - b[2]};
  return Norm(difference, 3);
}

// Normally distributed with mean 0 and variance 1 (Box and Muller 1958).
ROLLOUTS_HD inline double StandardNormal(Rng& rng) {
  const double radius = Sqrt(-2 * Log(1 - rng.Uniform()));
  return radius * Cos(2 * kPi * rng.Uniform());
}

// Adds noise from [-scale, scale) to each value.
ROLLOUTS_HD inline void AddUniform(Rng& rng, double scale, double* values, std::int32_t count) {
  for (std::int32_t i = 0; i < count; ++i) values[i] += rng.Uniform(-scale, scale);
}
ROLLOUTS_HD inline void AddNormal(Rng& rng, double scale, double* values, std::int32_t count) {
  for (std::int32_t i = 0; i < count; ++i) values[i] += scale * StandardNormal(rng);
}

template <typename Number>
ROLLOUTS_HD bool AllFinite(const Number* values, std::int32_t count) {
  for (std::int32_t i = 0; i < count; ++i) {
    // infinity minus itself is NaN
    if (values[i] - values[i] != 0) return false;
  }
  return true;
}

// Stores a position in a plane.
template <typename Number>
ROLLOUTS_HD void CopyPair(const Number* from, double* to) {
  to[0] = from[0];
  to[1] = from[1];
}

// Tells if low < value < high.
ROLLOUTS_HD inline bool Inside(double value, double low, double high) { return low < value && value < high; }

}  // namespace rollouts::mujoco
