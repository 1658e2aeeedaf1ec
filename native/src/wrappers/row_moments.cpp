// SPDX-License-Identifier: Apache-2.0
#include "rollouts/wrappers/row_moments.h"

#include <algorithm>

#include "support/clones.h"

namespace rollouts {
namespace {

// NumPy's sum of adjacent numbers: eight sums in parallel; blocks of more than this many numbers
// are halved.
constexpr std::int64_t kPairwiseBlock = 128;

double PairwiseSum(const double* values, std::int64_t count) {
  if (count < 8) {
    double sum = -0.0;
    for (std::int64_t i = 0; i < count; ++i) sum += values[i];
    return sum;
  }
  if (count <= kPairwiseBlock) {
    double sums[8];
    std::copy(values, values + 8, sums);
    std::int64_t i = 8;
    for (; i < count - count % 8; i += 8) {
      for (int lane = 0; lane < 8; ++lane) sums[lane] += values[i + lane];
    }
    double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
                 ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (; i < count; ++i) sum += values[i];
    return sum;
  }
  const std::int64_t half = count / 2 - count / 2 % 8;
  return PairwiseSum(values, half) + PairwiseSum(values + half, count - half);
}

// A single column, whose rows are adjacent numbers.
template <typename T>
void MomentsOfColumn(const T* values, std::int64_t count, Moments& moments) {
  std::vector<double> terms(values, values + count);
  const auto rows = static_cast<double>(count);
  const double mean = PairwiseSum(terms.data(), count) / rows;
  for (double& term : terms) term = (term - mean) * (term - mean);
  moments.mean[0] = mean;
  moments.var[0] = PairwiseSum(terms.data(), count) / rows;
}

template <typename T>
inline void AddRows(const T* rows, std::int64_t num_rows, std::int64_t size, double* sums) {
  for (std::int64_t row = 0; row < num_rows; ++row, rows += size) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < size; ++i) sums[i] += static_cast<double>(rows[i]);
  }
}

template <typename T>
inline void AddSquares(const T* rows, std::int64_t num_rows, std::int64_t size, const double* mean,
                       double* sums) {
  for (std::int64_t row = 0; row < num_rows; ++row, rows += size) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < size; ++i) {
      const double apart = static_cast<double>(rows[i]) - mean[i];
      sums[i] += apart * apart;
    }
  }
}

template <typename T>
inline void StandardizeRows(T* rows, std::int64_t num_rows, std::int64_t size, const double* mean,
                            const double* deviation, double clip) {
  for (std::int64_t row = 0; row < num_rows; ++row, rows += size) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < size; ++i) {
      const double value = (static_cast<double>(rows[i]) - mean[i]) / deviation[i];
      rows[i] = static_cast<T>(std::min(std::max(value, -clip), clip));
    }
  }
}

// one function for each type, because target_clones works on plain functions only
ROLLOUTS_CLONES void Add(const float* rows, std::int64_t num_rows, std::int64_t size,
                         double* sums) {
  AddRows(rows, num_rows, size, sums);
}
ROLLOUTS_CLONES void Add(const double* rows, std::int64_t num_rows, std::int64_t size,
                         double* sums) {
  AddRows(rows, num_rows, size, sums);
}
ROLLOUTS_CLONES void AddApart(const float* rows, std::int64_t num_rows, std::int64_t size,
                              const double* mean, double* sums) {
  AddSquares(rows, num_rows, size, mean, sums);
}
ROLLOUTS_CLONES void AddApart(const double* rows, std::int64_t num_rows, std::int64_t size,
                              const double* mean, double* sums) {
  AddSquares(rows, num_rows, size, mean, sums);
}
ROLLOUTS_CLONES void StandardizeAll(float* rows, std::int64_t num_rows, std::int64_t size,
                                    const double* mean, const double* deviation, double clip) {
  StandardizeRows(rows, num_rows, size, mean, deviation, clip);
}
ROLLOUTS_CLONES void StandardizeAll(double* rows, std::int64_t num_rows, std::int64_t size,
                                    const double* mean, const double* deviation, double clip) {
  StandardizeRows(rows, num_rows, size, mean, deviation, clip);
}

template <typename T>
Moments MomentsOfRows(const T* rows, std::int64_t num_rows, std::int64_t size) {
  const auto length = static_cast<std::size_t>(size);
  const auto count = static_cast<double>(num_rows);
  Moments moments{std::vector<double>(length, 0.0), std::vector<double>(length, 0.0), count};
  if (size == 1) {
    MomentsOfColumn(rows, num_rows, moments);
    return moments;
  }
  // adds row after row, as NumPy does along the first axis
  Add(rows, num_rows, size, moments.mean.data());
  for (double& mean : moments.mean) mean /= count;
  AddApart(rows, num_rows, size, moments.mean.data(), moments.var.data());
  for (double& var : moments.var) var /= count;
  return moments;
}

}  // namespace

Moments MomentsOf(const float* rows, std::int64_t num_rows, std::int64_t size) {
  return MomentsOfRows(rows, num_rows, size);
}

Moments MomentsOf(const double* rows, std::int64_t num_rows, std::int64_t size) {
  return MomentsOfRows(rows, num_rows, size);
}

void Standardize(float* rows, std::int64_t num_rows, const std::vector<double>& mean,
                 const std::vector<double>& deviation, double clip) {
  StandardizeAll(rows, num_rows, std::ssize(mean), mean.data(), deviation.data(), clip);
}

void Standardize(double* rows, std::int64_t num_rows, const std::vector<double>& mean,
                 const std::vector<double>& deviation, double clip) {
  StandardizeAll(rows, num_rows, std::ssize(mean), mean.data(), deviation.data(), clip);
}

}  // namespace rollouts
