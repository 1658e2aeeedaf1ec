// SPDX-License-Identifier: Apache-2.0
// Shrinks a picture row by row, with the numbers of pygame.transform.smoothscale on x86-64:
// averages by area, first of columns and then of rows, in 16-bit fixed point that rounds down.
#pragma once

#include <cstdint>
#include <vector>

#include "pixel_row.h"

namespace rollouts::race {

class Shrink {
 public:
  // Shrinks `rows` rows of PixelRow::kWidth pixels to (height, width, 3), which must be smaller in
  // both.
  Shrink(std::int32_t rows, std::int32_t width, std::int32_t height);

  std::int32_t width() const { return width_; }
  std::int32_t height() const { return height_; }

  // Begins a picture in `rgb`, which is borrowed until its last row was taken.
  void Begin(std::uint8_t* rgb);
  const PixelColumns& columns() const { return columns_; }
  // Takes the next row, from the top.
  void TakeRow(const PixelRow& row);
  // Takes a next row that equals the one before.
  void TakeSameRow();

 private:
  static std::vector<std::int32_t> Ends(std::int32_t width);
  void SetWeights();
  void WriteRow();

  std::int32_t width_;
  std::int32_t height_;
  std::uint8_t* rgb_ = nullptr;
  std::uint32_t column_share_;  // 2^16 / number of pixels that become one
  std::uint32_t row_share_;
  std::uint32_t row_space_;     // number of rows that become one, in 2^-14
  std::uint32_t row_left_ = 0;  // the part of them that is still to come
  PixelColumns columns_;
  // four lanes for each column, as in the next five
  std::vector<std::uint16_t> first_weights_;
  std::vector<std::uint16_t> whole_pixels_;
  std::vector<std::uint16_t> last_weights_;
  std::vector<Lanes> line_;    // averages of this row
  std::vector<Lanes> rows_;    // sums of rows
  std::vector<Lanes> result_;
};

}  // namespace rollouts::race
