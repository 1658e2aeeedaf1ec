// SPDX-License-Identifier: Apache-2.0
// A picture of an environment.
#pragma once

#include <cstdint>
#include <vector>

namespace rollouts {

struct Frame {
  std::int32_t height = 0;
  std::int32_t width = 0;
  std::vector<std::uint8_t> rgb;  // (height, width, 3)
};

}  // namespace rollouts
