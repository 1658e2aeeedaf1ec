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
  // Shrinks `rows` of PixelRow::kWidth to (height, width, 3); smaller in both.
  Shrink(std::int32_t rows, std::int32_t width, std::int32_t height);

  std::int32_t width() const { return width_; }
  std::int32_t height() const { return height_; }

  // Begins a picture in `rgb`, which is borrowed until its last row is taken.
  void Begin(std::uint8_t* rgb);
  const PixelColumns& columns() const { return columns_; }
  // The next row, from above.
  void TakeRow(const PixelRow& row);
  // The next row is equal to the one before.
  void TakeSameRow();

 private:
  static std::vector<std::int32_t> Ends(std::int32_t width);
  void SetWeights();
  void WriteRow();

  std::int32_t width_;
  std::int32_t height_;
  std::uint8_t* rgb_ = nullptr;
  std::uint32_t column_share_;  // 2^16 divided by how many pixels are one
  std::uint32_t row_share_;
  std::uint32_t row_space_;     // rows that are one, in 2^-14
  std::uint32_t row_left_ = 0;  // those yet to come
  PixelColumns columns_;
  // four lanes of each column, as are the next five
  std::vector<std::uint16_t> first_weights_;
  std::vector<std::uint16_t> whole_pixels_;
  std::vector<std::uint16_t> last_weights_;
  std::vector<Lanes> line_;    // averages of this row
  std::vector<Lanes> rows_;    // sums of rows
  std::vector<Lanes> result_;
};

}  // namespace rollouts::race
