// SPDX-License-Identifier: Apache-2.0
#include "pixel_row.h"

#include <algorithm>
#include <cassert>

namespace rollouts::race {

PixelColumns::PixelColumns(const std::vector<std::int32_t>& ends)
    : places_(kWidth), masks_(ends.size()) {
  // the pixel to the left of the row, which counts nothing
  std::int32_t start = -1;
  for (std::size_t column = 0; column < ends.size(); ++column) {
    const std::int32_t end = ends[column];
    // a column with more pixels would overwrite the next one
    assert(end - start < kMostPixels);
    for (std::int32_t x = start + 1; x <= end; ++x) {
      const auto here = static_cast<std::uint16_t>(column);
      const auto next = static_cast<std::uint16_t>(column + 1);
      places_[x] = {.column = here,
                    .index = static_cast<std::uint16_t>(x - start),
                    .from = x == 0 ? here : next,
                    .to = x == end ? next : here};
    }
    std::fill_n(masks_[column].whole.begin() + 1, end - start - 1, ~Lanes{0});
    lasts_.push_back(end - start);
    start = end;
  }
}

PixelRow::PixelRow(const PixelColumns& columns)
    : columns_(&columns),
      colors_(columns.count()),
      pixels_(columns.count()),
      mixed_(columns.count() / 64 + 1) {}

}  // namespace rollouts::race
