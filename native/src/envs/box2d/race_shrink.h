// SPDX-License-Identifier: Apache-2.0
// A picture made smaller row by row, with the numbers of pygame.transform.smoothscale on x86-64:
// averages by area, of columns and then of rows, in 16-bit fixed point that rounds down.
#pragma once

#include <cstdint>
#include <vector>

#include "pixel_row.h"

namespace rollouts::race {

class Shrink {
 public:
  // From `rows` of PixelRow::kWidth to (height, width, 3) in `rgb`, which it borrows; smaller in both.
  Shrink(std::int32_t rows, std::int32_t width, std::int32_t height, std::uint8_t* rgb);

  // The next row, from above, which is to be painted and then taken.
  PixelRow& row() { return row_; }
  void TakeRow();

 private:
  static std::vector<std::int32_t> Ends(std::int32_t width);
  void SetWeights();
  void Average(std::int32_t column);
  void WriteRow();

  const std::int32_t width_;
  std::uint8_t* rgb_;
  std::uint32_t column_share_;  // 2^16 divided by how many pixels are one
  std::uint32_t row_share_;
  std::uint32_t row_space_;     // rows that are one, in 2^-14
  std::uint32_t row_left_;      // of them, yet to come
  PixelRow row_;
  // four lanes of each column, as are the next four
  std::vector<std::uint16_t> first_weights_;
  std::vector<std::uint16_t> last_weights_;
  std::vector<std::uint16_t> line_;  // averages of this row
  std::vector<std::uint16_t> rows_;  // sums of rows
  std::vector<std::uint16_t> result_;
  std::vector<Lanes> before_;        // a column's one colour in the row before, or PixelRow::kMixed
};

}  // namespace rollouts::race
