// SPDX-License-Identifier: Apache-2.0
#include "rollouts/envs/atari/resize.h"

#include <string>

#include "rollouts/support/errors.h"

namespace rollouts {

FrameResize::FrameResize(std::int32_t src_height, std::int32_t src_width, std::int32_t dst_height,
                         std::int32_t dst_width, std::int32_t channels, bool by_area)
    : resize_(Make(src_height, src_width, dst_height, dst_width, channels, by_area)) {}

FrameResize::Either FrameResize::Make(std::int32_t src_height, std::int32_t src_width,
                                      std::int32_t dst_height, std::int32_t dst_width,
                                      std::int32_t channels, bool by_area) {
  if (dst_height < 1 || dst_height > kMaxSide || dst_width < 1 || dst_width > kMaxSide) {
    throw SpecError("img_height, img_width is " + std::to_string(dst_height) + ", " +
                    std::to_string(dst_width) + ", expected 1 to " + std::to_string(kMaxSide) +
                    " each");
  }
  // as in OpenCV: halving in both directions averages 2x2 elements under either name
  const bool shrinks = dst_height <= src_height && dst_width <= src_width;
  const bool halves = src_height == 2 * dst_height && src_width == 2 * dst_width;
  if (by_area ? shrinks : halves) {
    return AreaResize(src_height, src_width, dst_height, dst_width, channels);
  }
  return LinearResize(src_height, src_width, dst_height, dst_width, channels,
                      by_area ? LinearResize::Weights::kArea : LinearResize::Weights::kLinear);
}

}  // namespace rollouts
