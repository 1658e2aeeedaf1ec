// SPDX-License-Identifier: Apache-2.0
// Info columns of a batch: converts the numbers that an environment writes to the dtypes of the
// columns.
#pragma once

#include "rollouts/core/spec.h"

namespace rollouts {

// A light environment with info columns.
template <typename Env>
inline constexpr bool kTellsInfo = Env::kSpec.num_infos > 0;

// The number of values that its WriteInfo writes.
template <typename Env>
ROLLOUTS_HD constexpr std::int32_t NumInfoValues() {
  std::int32_t total = 0;
  for (std::int32_t i = 0; i < Env::kSpec.num_infos; ++i) total += Env::kSpec.infos[i].size();
  return total;
}

template <typename T>
ROLLOUTS_HD inline void StoreInfo(void* column, std::int64_t row, std::int32_t size,
                                  const double* values) {
  T* const to = static_cast<T*>(column) + row * size;
  for (std::int32_t i = 0; i < size; ++i) to[i] = static_cast<T>(values[i]);
}

ROLLOUTS_HD inline void StoreInfo(const InfoSpec& info, void* column, std::int64_t row,
                                  const double* values) {
  switch (info.dtype) {
    case DType::kInt8: return StoreInfo<std::int8_t>(column, row, info.size(), values);
    case DType::kInt32: return StoreInfo<std::int32_t>(column, row, info.size(), values);
    default: return StoreInfo<double>(column, row, info.size(), values);
  }
}

// Writes one row of the columns of a light environment, info after info as WriteInfo gives them.
template <typename Env, std::int32_t kInfo = 0>
ROLLOUTS_HD inline void StoreInfos(const double* values, void* const* columns, std::int64_t row) {
  if constexpr (kInfo < Env::kSpec.num_infos) {
    constexpr InfoSpec kColumn = {nullptr, Env::kSpec.infos[kInfo].dtype,
                                  Env::kSpec.infos[kInfo].length};
    StoreInfo(kColumn, columns[kInfo], row, values);
    StoreInfos<Env, kInfo + 1>(values + kColumn.size(), columns, row);
  }
}

}  // namespace rollouts
