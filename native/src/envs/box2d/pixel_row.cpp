// SPDX-License-Identifier: Apache-2.0
#include "pixel_row.h"

namespace rollouts::race {

PixelRow::PixelRow(const std::vector<std::int32_t>& ends)
    : ends_(ends), colors_(ends.size()), column_of_(kWidth) {
  std::int32_t start = 0;
  for (std::int32_t column = 0; column < num_columns(); ++column) {
    starts_.push_back(start);
    stride_ = std::max(stride_, static_cast<std::size_t>(ends_[column] - start) + 1);
    for (std::int32_t x = column == 0 ? 0 : start + 1; x <= ends_[column]; ++x) {
      column_of_[x] = column;
    }
    start = ends_[column];
  }
  pixels_.resize(stride_ * ends_.size());
}

}  // namespace rollouts::race
