// SPDX-License-Identifier: Apache-2.0
// Moments of rows, and rows scaled by moments, with vector instructions.
#pragma once

#include <cstdint>
#include <vector>

#include "rollouts/support/moments.h"

namespace rollouts {

// Moments of at least one row; the rows lie one after the other and have `size` numbers each. Sums
// are taken in NumPy's order, so that rows of double give the bits of np.mean and np.var along axis
// 0.
Moments MomentsOf(const float* rows, std::int64_t num_rows, std::int64_t size);
Moments MomentsOf(const double* rows, std::int64_t num_rows, std::int64_t size);

// Writes (x - mean) / deviation over `num_rows` rows, limited to [-clip, clip].
void Standardize(float* rows, std::int64_t num_rows, const std::vector<double>& mean,
                 const std::vector<double>& deviation, double clip);
void Standardize(double* rows, std::int64_t num_rows, const std::vector<double>& mean,
                 const std::vector<double>& deviation, double clip);

}  // namespace rollouts
