// SPDX-License-Identifier: Apache-2.0
#include "rollouts/envs/atari/linear_resize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace rollouts {
namespace {

constexpr float kOne = 2048;  // a weight of 1

}  // namespace

LinearResize::LinearResize(std::int32_t src_height, std::int32_t src_width,
                           std::int32_t dst_height, std::int32_t dst_width, std::int32_t channels,
                           Weights weights)
    : src_row_bytes_(src_width * channels),
      channels_(channels),
      rows_(MakeTaps(src_height, dst_height, weights, /*clamp=*/false)),
      columns_(MakeTaps(src_width, dst_width, weights, /*clamp=*/true)) {
  for (auto& row : blended_) row.resize(static_cast<std::size_t>(dst_width) * channels);
}

std::vector<LinearResize::Tap> LinearResize::MakeTaps(std::int32_t src_size,
                                                      std::int32_t dst_size, Weights weights,
                                                      bool clamp) {
  // computed in OpenCV's order of operations, because that affects rounding
  const double growth = static_cast<double>(dst_size) / src_size;
  const double scale = 1.0 / growth;
  std::vector<Tap> taps;
  for (std::int32_t dst = 0; dst < dst_size; ++dst) {
    std::int32_t first = 0;
    float part = 0;  // the second element's
    if (weights == Weights::kLinear) {
      part = static_cast<float>((dst + 0.5) * scale - 0.5);
      first = static_cast<std::int32_t>(std::floor(part));
      part -= static_cast<float>(first);
    } else {
      first = static_cast<std::int32_t>(std::floor(dst * scale));
      part = static_cast<float>((dst + 1) - (first + 1) * growth);
      part = part <= 0 ? 0.0f : part - std::floor(part);
    }
    if (clamp && (first < 0 || first >= src_size - 1)) {
      part = 0;
      first = std::clamp(first, 0, src_size - 1);
    }
    Tap tap;
    tap.first = std::clamp(first, 0, src_size - 1);
    tap.second = std::clamp(first + 1, 0, src_size - 1);
    tap.weights[0] = static_cast<std::int32_t>(std::nearbyint((1.0f - part) * kOne));
    tap.weights[1] = static_cast<std::int32_t>(std::nearbyint(part * kOne));
    taps.push_back(tap);
  }
  return taps;
}

// The columns of source row `src_y`, blended; keeps the blended source row `keep`.
const std::int32_t* LinearResize::Columns(const std::uint8_t* src, std::int32_t src_y,
                                          std::int32_t keep) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (cached_[i] == src_y) return blended_[i].data();
  }
  const std::size_t slot = cached_[0] == keep ? 1 : 0;
  cached_[slot] = src_y;
  std::int32_t* out = blended_[slot].data();
  const std::uint8_t* const row = src + static_cast<std::ptrdiff_t>(src_y) * src_row_bytes_;
  for (const Tap& tap : columns_) {
    for (std::int32_t c = 0; c < channels_; ++c) {
      *out++ = row[tap.first * channels_ + c] * tap.weights[0] +
               row[tap.second * channels_ + c] * tap.weights[1];
    }
  }
  return blended_[slot].data();
}

void LinearResize::ComputeRow(const std::uint8_t* src, std::int32_t dst_y,
                              std::uint8_t* dst_row) {
  const Tap& tap = rows_[dst_y];
  const std::int32_t* const first = Columns(src, tap.first, tap.second);
  const std::int32_t* const second = Columns(src, tap.second, tap.first);
  // drops bits as OpenCV does: four before the product, sixteen after it, two after the sum
  for (std::size_t x = 0; x < blended_[0].size(); ++x) {
    const std::int32_t sum = ((tap.weights[0] * (first[x] >> 4)) >> 16) +
                             ((tap.weights[1] * (second[x] >> 4)) >> 16);
    dst_row[x] = static_cast<std::uint8_t>((sum + 2) >> 2);
  }
}

}  // namespace rollouts
