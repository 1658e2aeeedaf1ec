// SPDX-License-Identifier: Apache-2.0
// Converts rows of observations to columns of floats, and finds a head's inputs among columns.
#pragma once

#include <cstdint>
#include <vector>

#include "rollouts/core/spec.h"
#include "rollouts/policy/heads.h"
#include "rollouts/policy/native_policy.h"
#include "rollouts/policy/network.h"

namespace rollouts::policy {

// Memory that begins at a cache line, as the kernels need it.
class Scratch {
 public:
  explicit Scratch(std::int64_t floats)
      : memory_(static_cast<std::size_t>(floats) + 16, 0.0f) {
    // 16 floats more than requested, as room to begin at the next line
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = memory_.data() + (64 - address % 64) % 64 / sizeof(float);
  }
  float* data() { return begin_; }

 private:
  std::vector<float> memory_;
  float* begin_;
};

// Transposes rows, so that each feature's values for all columns lie together. Columns from `count`
// on keep their values.
template <typename Obs>
inline void GatherColumns(const Obs* rows, std::int32_t count, std::int64_t size, float* to) {
  std::int32_t column = 0;
  // four rows at once, because a loop for one row would spend most time on its beginning and end
  for (; column + 4 <= count; column += 4) {
    const Obs* row = rows + column * size;
    float* first = to + column;
    for (std::int64_t k = 0; k < size; ++k, first += kColumns) {
      const Obs four[] = {row[k], row[size + k], row[2 * size + k], row[3 * size + k]};
      for (std::int32_t i = 0; i < 4; ++i) first[i] = static_cast<float>(four[i]);
    }
  }
  for (; column < count; ++column) {
    const Obs* row = rows + column * size;
    for (std::int64_t k = 0; k < size; ++k) to[k * kColumns + column] = static_cast<float>(row[k]);
  }
}

// Gathers `count` rows, at most kColumns.
inline void Gather(const SpaceSpec& space, const std::uint8_t* rows, std::int32_t count,
                   float* to) {
  const std::int64_t size = space.size();
  switch (space.dtype) {
    case DType::kUint8: return GatherColumns(rows, count, size, to);
    case DType::kInt8:
      return GatherColumns(reinterpret_cast<const std::int8_t*>(rows), count, size, to);
    case DType::kInt16:
      return GatherColumns(reinterpret_cast<const std::int16_t*>(rows), count, size, to);
    case DType::kInt32:
      return GatherColumns(reinterpret_cast<const std::int32_t*>(rows), count, size, to);
    case DType::kInt64:
      return GatherColumns(reinterpret_cast<const std::int64_t*>(rows), count, size, to);
    case DType::kFloat32:
      return GatherColumns(reinterpret_cast<const float*>(rows), count, size, to);
    case DType::kFloat64:
      return GatherColumns(reinterpret_cast<const double*>(rows), count, size, to);
  }
}

// The rows of output `index` among those of a network.
inline const float* OutputRows(const Network& network, std::size_t index, const float* rows) {
  return rows + std::int64_t{network.output_row(index)} * kColumns;
}

// The inputs of a head: its network's first output, and for some heads the second.
inline HeadInputs HeadInputsOf(const NativePolicy& policy, const float* rows) {
  const Network& network = *policy.network;
  HeadInputs inputs{.first = OutputRows(network, 0, rows), .size = network.output_size(0)};
  if (!IsDiscrete(policy.head.kind)) {
    inputs.second = OutputRows(network, 1, rows);
    inputs.second_size = network.output_size(1);
  }
  if (!policy.bounds.empty()) inputs.bounds = policy.bounds.data();
  inputs.nvec = policy.nvec.data();
  inputs.num_elements = static_cast<std::int32_t>(policy.nvec.size());
  return inputs;
}

// Sets to 0 the probability of the actions that `mask` (count, A) does not allow. Throws SpecError
// where it allows none.
void MaskLogits(const NativePolicy& policy, const std::uint8_t* mask, std::int32_t count,
                float* rows);

}  // namespace rollouts::policy
