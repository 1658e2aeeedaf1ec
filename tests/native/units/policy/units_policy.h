// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of policy/: networks written by hand, and their results for one group of
// columns.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "policy/columns.h"
#include "rollouts/policy/kernels.h"
#include "rollouts/policy/network.h"

namespace rollouts::policy {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline Op MakeOp(OpKind kind, std::vector<std::int32_t> inputs, std::int32_t size,
                 std::vector<std::int32_t> params = {}, std::vector<float> numbers = {}) {
  return {kind, std::move(inputs), std::move(params), std::move(numbers), size};
}

using Arrays = std::vector<std::vector<float>>;

inline std::vector<float> Packed(const Network& network, const Arrays& arrays) {
  const std::vector<std::span<const float>> spans(arrays.begin(), arrays.end());
  return network.Pack(spans);
}

// The scratch memory after a network ran on one group of columns.
class Ran {
 public:
  // `obs` says feature k of a column; the first `columns` are computed.
  Ran(const Network& network, const Arrays& arrays,
      const std::function<float(std::int32_t k, std::int32_t column)>& obs,
      std::int32_t columns = kColumns)
      : network_(network), rows_(std::int64_t{network.num_rows()} * kColumns) {
    for (std::int32_t k = 0; k < network.program().obs_size; ++k) {
      for (std::int32_t c = 0; c < kColumns; ++c) rows_.data()[k * kColumns + c] = obs(k, c);
    }
    // the kernels ask for parameters on a cache line no more than for rows
    const std::vector<float> params = Packed(network, arrays);
    const auto steps = network.instructions();
    BestKernels().forward(steps.data(), static_cast<std::int32_t>(steps.size()), params.data(),
                          rows_.data(), columns);
  }

  // Feature k of output `index`.
  float At(std::size_t index, std::int32_t k, std::int32_t column) {
    return rows_.data()[(network_.output_row(index) + k) * kColumns + column];
  }

 private:
  const Network& network_;
  Scratch rows_;
};

}  // namespace rollouts::policy
