// SPDX-License-Identifier: Apache-2.0
// Resizes an 8-bit image by bilinear interpolation, bit for bit as OpenCV 4.10's cv::resize with
// fixed-point weights. OpenCV's INTER_AREA does the same, with other weights, where an image grows
// in either direction.
#pragma once

#include <cstdint>
#include <vector>

#include "rollouts/envs/atari/area_resize.h"

namespace rollouts {

class LinearResize {
 public:
  enum class Weights : std::uint8_t { kLinear, kArea };  // as OpenCV's INTER_LINEAR and INTER_AREA

  // Rows are interleaved channels. All sizes are at least 1.
  LinearResize(std::int32_t src_height, std::int32_t src_width, std::int32_t dst_height,
               std::int32_t dst_width, std::int32_t channels, Weights weights);

  // The source rows that row `dst_y` of the result is computed from.
  AreaResize::RowRange SourceRows(std::int32_t dst_y) const {
    return {rows_[dst_y].first, rows_[dst_y].second};
  }

  // To be called before the rows of another image.
  void BeginImage() { cached_[0] = cached_[1] = -1; }

  // Writes row `dst_y` of the result. `src` is the whole image.
  void ComputeRow(const std::uint8_t* src, std::int32_t dst_y, std::uint8_t* dst_row);

 private:
  // A result between two source elements; their weights sum to 2048.
  struct Tap {
    std::int32_t first = 0;
    std::int32_t second = 0;
    std::int32_t weights[2] = {};
  };

  // `clamp`: at the edges only the nearer element counts, as in OpenCV for columns.
  static std::vector<Tap> MakeTaps(std::int32_t src_size, std::int32_t dst_size, Weights weights,
                                   bool clamp);
  const std::int32_t* Columns(const std::uint8_t* src, std::int32_t src_y, std::int32_t keep);

  std::int32_t src_row_bytes_;
  std::int32_t channels_;
  std::vector<Tap> rows_;
  std::vector<Tap> columns_;
  std::int32_t cached_[2] = {-1, -1};  // the source rows in blended_
  std::vector<std::int32_t> blended_[2];
};

}  // namespace rollouts
