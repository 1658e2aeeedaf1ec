// SPDX-License-Identifier: Apache-2.0
#include "pixel_row.h"

#include <cassert>

namespace rollouts::race {

PixelRow::PixelRow(const std::vector<std::int32_t>& ends)
    : ends_(ends), colors_(ends.size()), column_of_(kWidth) {
  std::int32_t start = 0;
  for (std::int32_t column = 0; column < num_columns(); ++column) {
    starts_.push_back(start);
    for (std::int32_t x = column == 0 ? 0 : start + 1; x <= ends_[column]; ++x) {
      column_of_[x] = column;
    }
    start = ends_[column];
  }
  // a column of more would write over the next
  for (std::int32_t column = 0; column < num_columns(); ++column) {
    assert(static_cast<std::size_t>(ends_[column] - starts_[column]) < kMostPixels);
  }
  pixels_.resize(kMostPixels * ends_.size());
}

}  // namespace rollouts::race
