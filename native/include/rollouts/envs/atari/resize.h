// SPDX-License-Identifier: Apache-2.0
// The resize of Atari's frames: by area or bilinear.
#pragma once

#include <cstdint>
#include <variant>

#include "rollouts/envs/atari/area_resize.h"
#include "rollouts/envs/atari/linear_resize.h"

namespace rollouts {

// Resizes as cv::resize with INTER_AREA, or else with INTER_LINEAR.
class FrameResize {
 public:
  static constexpr std::int32_t kMaxSide = 4096;

  // Rows are interleaved channels. Throws SpecError unless 1 <= dst_height, dst_width <= kMaxSide.
  FrameResize(std::int32_t src_height, std::int32_t src_width, std::int32_t dst_height,
              std::int32_t dst_width, std::int32_t channels, bool by_area);

  AreaResize::RowRange SourceRows(std::int32_t dst_y) const {
    return std::visit([&](const auto& one) { return one.SourceRows(dst_y); }, resize_);
  }
  void BeginImage() {
    std::visit([](auto& one) { one.BeginImage(); }, resize_);
  }
  void ComputeRow(const std::uint8_t* src, std::int32_t dst_y, std::uint8_t* dst_row) {
    std::visit([&](auto& one) { one.ComputeRow(src, dst_y, dst_row); }, resize_);
  }

 private:
  using Either = std::variant<AreaResize, LinearResize>;
  static Either Make(std::int32_t src_height, std::int32_t src_width, std::int32_t dst_height,
                     std::int32_t dst_width, std::int32_t channels, bool by_area);

  Either resize_;
};

}  // namespace rollouts
