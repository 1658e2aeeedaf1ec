// SPDX-License-Identifier: Apache-2.0
// Arithmetic of the MuJoCo tasks, in the order in which NumPy does it.
#pragma once

#include <cmath>
#include <cstdint>

#include "rollouts/core/math.h"
#include "rollouts/core/rng.h"

namespace rollouts::mujoco {

// Sum of term(first), ..., term(first + count - 1) as NumPy adds up an array: in pairs, with
// eight sums side by side.
template <typename T, typename Term>
T PairwiseSum(const Term& term, std::int32_t first, std::int32_t count) {
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
T SumOfSquares(const T* values, std::int32_t count) {
  return PairwiseSum<T>([&](std::int32_t i) { return values[i] * values[i]; }, 0, count);
}

// weight * np.sum(np.square(action)): actions are float32, and a Python float times a float32 is
// a float32.
inline double ActionCost(double weight, const float* action, std::int32_t count) {
  return static_cast<float>(weight) * SumOfSquares(action, count);
}

// np.linalg.norm of a vector.
inline double Norm(const double* values, std::int32_t count) {
  double sum = 0;
  for (std::int32_t i = 0; i < count; ++i) sum += values[i] * values[i];
  return std::sqrt(sum);
}
inline double Distance(const double* a, const double* b) {
  const double difference[3] = {a[0] - b[0], a[1] - b[1], a[2] - b[2]};
  return Norm(difference, 3);
}

// Normally distributed with mean 0 and variance 1 (Box and Muller 1958).
inline double StandardNormal(Rng& rng) {
  const double radius = std::sqrt(-2 * std::log(1 - rng.Uniform()));
  return radius * Cos(2 * kPi * rng.Uniform());
}

// Adds noise from [-scale, scale) to each value.
inline void AddUniform(Rng& rng, double scale, double* values, std::int32_t count) {
  for (std::int32_t i = 0; i < count; ++i) values[i] += rng.Uniform(-scale, scale);
}
inline void AddNormal(Rng& rng, double scale, double* values, std::int32_t count) {
  for (std::int32_t i = 0; i < count; ++i) values[i] += scale * StandardNormal(rng);
}

inline bool AllFinite(const double* values, std::int32_t count) {
  for (std::int32_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) return false;
  }
  return true;
}

// Whether low < value < high.
inline bool Inside(double value, double low, double high) { return low < value && value < high; }

}  // namespace rollouts::mujoco
