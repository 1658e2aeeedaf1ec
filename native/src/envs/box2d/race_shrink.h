// SPDX-License-Identifier: Apache-2.0
// A picture made smaller row by row, with the numbers of pygame.transform.smoothscale on x86-64:
// averages by area, of columns and then of rows, in 16-bit fixed point that rounds down.
#pragma once

#include <cstdint>
#include <vector>

#include "pygame_canvas.h"

namespace rollouts::race {

class Shrink {
 public:
  // Writes (height, width, 3) to `rgb`, which it borrows; smaller than the canvas in both.
  Shrink(std::int32_t width, std::int32_t height, std::uint8_t* rgb);

  // Takes the next row of Canvas::kWidth pixels, from above.
  void TakeRow(const Lanes* row);

 private:
  // A column of the result: a part of one pixel, whole ones, and a part of the last.
  struct Column {
    std::int32_t first;
    std::int32_t last;
  };

  void Sum(const Lanes* row);
  void WriteRow();

  const std::int32_t width_;
  std::uint8_t* rgb_;
  std::uint32_t column_share_;  // 2^16 divided by how many pixels are one
  std::uint32_t row_share_;
  std::uint32_t row_space_;     // rows that are one, in 2^-14
  std::uint32_t row_left_;      // of them, yet to come
  std::vector<Column> columns_;
  // four lanes of each column
  std::vector<std::uint16_t> first_weights_;
  std::vector<std::uint16_t> last_weights_;
  std::vector<std::uint16_t> first_;
  std::vector<std::uint16_t> whole_;
  std::vector<std::uint16_t> last_;
  std::vector<std::uint16_t> line_;
  std::vector<std::uint16_t> rows_;
};

}  // namespace rollouts::race
