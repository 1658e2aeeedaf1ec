// SPDX-License-Identifier: Apache-2.0
// Model fields of a pool's environments as its user gives them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rollouts/core/model_overrides.h"

namespace rollouts {

// Values of a field for the environments of a pool.
struct ModelColumn {
  std::string field;
  bool shared = false;   // the file's values again; the fields below are unused then
  bool by_env = false;   // values for each environment of the pool, else one set for all
  std::size_t size = 0;  // values of one environment
  std::vector<double> low;
  std::vector<double> high;  // as in ModelOverride
};

using ModelColumns = std::vector<ModelColumn>;

// Returns `before` with the values in row `row` in place of those of equal names.
inline ModelOverrides MergeOverrides(ModelOverrides before, const ModelColumns& given,
                                     std::int32_t row) {
  for (const ModelColumn& column : given) {
    const auto same = [&](const ModelOverride& one) { return one.field == column.field; };
    std::erase_if(before, same);
    if (column.shared) continue;
    const auto part = [&](const std::vector<double>& values) {
      if (values.empty()) return values;
      const std::size_t first = column.by_env ? static_cast<std::size_t>(row) * column.size : 0;
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first);
      return std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(column.size));
    };
    before.push_back({column.field, part(column.low), part(column.high)});
  }
  // the order decides which random numbers a field gets
  std::sort(before.begin(), before.end(), [](const ModelOverride& a, const ModelOverride& b) {
    return a.field < b.field;
  });
  return before;
}

}  // namespace rollouts
