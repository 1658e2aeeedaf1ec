// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "rollouts/core/math.h"
#include "rollouts/envs/dm_control/terrain.h"
#include "rollouts/support/errors.h"

namespace rollouts::dmc {
namespace {

constexpr double kSmoothness = 0.15;  // 0: as bumpy as possible, 1: smooth; as in dm_control
constexpr double kBumpMetres = 2;
constexpr std::int32_t kLeastBumps = 3;  // along one side; fewer have no neighbours to mirror

// Coefficients of the cubic B-spline through `values`, which is mirrored at its ends: solves
// (c[i - 1] + 4 c[i] + c[i + 1]) / 6 = values[i] in place (Thomas' algorithm).
void ToCoefficients(std::vector<double>& values) {
  const std::size_t n = values.size();
  std::vector<double> above(n);
  // the end's only neighbour counts twice
  double pivot = 4;
  above[0] = 2 / pivot;
  values[0] = 6 * values[0] / pivot;
  for (std::size_t i = 1; i < n; ++i) {
    const double below = i + 1 == n ? 2 : 1;
    pivot = 4 - below * above[i - 1];
    above[i] = 1 / pivot;
    values[i] = (6 * values[i] - below * values[i - 1]) / pivot;
  }
  // backwards, as each row has only one other coefficient left
  for (std::size_t i = n - 1; i-- > 0;) values[i] -= above[i] * values[i + 1];
}

// The spline at `at`, in units of coefficients from the first.
double Evaluate(const std::vector<double>& coefficients, double at) {
  const auto last = static_cast<std::int32_t>(coefficients.size()) - 1;
  const auto cell = static_cast<std::int32_t>(std::floor(at));
  const double t = at - cell;
  const double weights[4] = {(1 - t) * (1 - t) * (1 - t) / 6, (4 - 6 * t * t + 3 * t * t * t) / 6,
                             (1 + 3 * t + 3 * t * t - 3 * t * t * t) / 6, t * t * t / 6};
  double sum = 0;
  for (std::int32_t i = 0; i < 4; ++i) {
    std::int32_t index = std::abs(cell - 1 + i);
    // mirrored at both ends, as in ToCoefficients
    if (index > last) index = 2 * last - index;
    sum += weights[i] * coefficients[static_cast<std::size_t>(index)];
  }
  return sum;
}

// `size` values of the spline through `values`, from end to end.
std::vector<double> Zoom(std::vector<double> values, std::int32_t size) {
  const double step = static_cast<double>(values.size() - 1) / (size - 1);
  ToCoefficients(values);
  std::vector<double> zoomed;
  for (std::int32_t i = 0; i < size; ++i) zoomed.push_back(Evaluate(values, i * step));
  return zoomed;
}

// The number of bumps along one side.
std::int32_t NumBumps(std::int32_t num_rows, double metres) {
  const double bumps = metres / kBumpMetres;
  // written such that it is also true for NaN
  if (!(bumps >= kLeastBumps && bumps <= num_rows)) {
    throw EngineError("the height field is " + std::to_string(metres) +
                      " metres wide, twice its hfield_size, expected " +
                      std::to_string(kLeastBumps * kBumpMetres) + " to " +
                      std::to_string(num_rows * kBumpMetres) +
                      ": its bumps are two metres apart, and have a row of heights or more each");
  }
  return static_cast<std::int32_t>(bumps);
}

}  // namespace

void DrawTerrain(Rng& rng, std::int32_t num_rows, double metres, std::span<float> heights) {
  const std::int32_t bumps = NumBumps(num_rows, metres);
  // along one axis, then along the other
  std::vector<std::vector<double>> half;
  for (std::int32_t i = 0; i < bumps; ++i) {
    std::vector<double> row;
    for (std::int32_t j = 0; j < bumps; ++j) row.push_back(rng.Uniform(kSmoothness, 1));
    half.push_back(Zoom(std::move(row), num_rows));
  }
  const auto from_middle = [&](std::int32_t i) { return -1 + 2.0 * i / (num_rows - 1); };
  for (std::int32_t column = 0; column < num_rows; ++column) {
    std::vector<double> line;
    for (const auto& row : half) line.push_back(row[static_cast<std::size_t>(column)]);
    line = Zoom(std::move(line), num_rows);
    for (std::int32_t row = 0; row < num_rows; ++row) {
      // flat in the middle, where the robot starts, and at the rim
      const double radius = std::clamp(std::hypot(from_middle(row), from_middle(column)), 0.04, 1.0);
      const double bowl = 0.5 - std::cos(2 * kPi * radius) / 2;
      heights[static_cast<std::size_t>(row * num_rows + column)] =
          static_cast<float>(bowl * line[static_cast<std::size_t>(row)]);
    }
  }
}

}  // namespace rollouts::dmc
