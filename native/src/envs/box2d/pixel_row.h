// SPDX-License-Identifier: Apache-2.0
// A row of pixels that is to be averaged over columns, each of several pixels and parts of two that
// it shares with its neighbours. A column of one colour, as most are, is kept as that colour alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace rollouts::race {

// A pixel: red, green and blue in 16 bits each, from the lowest, so that sums of them fit.
using Lanes = std::uint64_t;

constexpr Lanes LanesOf(std::uint32_t red, std::uint32_t green, std::uint32_t blue) {
  return Lanes{red} | Lanes{green} << 16 | Lanes{blue} << 32;
}

// `above` on `below`, of which it covers so much in 256ths.
inline Lanes Blend(Lanes below, Lanes above, std::int32_t cover) {
  Lanes result = 0;
  for (int shift = 0; shift < 48; shift += 16) {
    const auto from = static_cast<std::int32_t>(below >> shift & 255);
    const auto to = static_cast<std::int32_t>(above >> shift & 255);
    result |= static_cast<Lanes>(from + ((to - from) * cover >> 8)) << shift;
  }
  return result;
}

class PixelRow {
 public:
  static constexpr std::int32_t kWidth = 1000;
  static constexpr Lanes kMixed = ~Lanes{0};  // no colour
  static constexpr std::size_t kMostPixels = 12;  // of a column

  // What a column's pixels add up to: its first and last one count in part.
  struct Sums {
    Lanes first;
    Lanes whole;
    Lanes last;
  };

  // `ends`: the last pixel of each column, which is the next column's first; of kWidth pixels.
  explicit PixelRow(const std::vector<std::int32_t>& ends);

  // Pixels from first to last; those outside the row are left out.
  void Fill(std::int32_t first, std::int32_t last, Lanes color) {
    first = std::max(first, 0);
    last = std::min(last, kWidth - 1);
    if (first > last) return;
    std::int32_t column = column_of_[first];
    FillColumn(column, first, last, color);
    const std::int32_t end = column_of_[last];
    if (++column < end) {
      std::fill(colors_.begin() + column, colors_.begin() + end, color);
      column = end;
    }
    // the last pixel may be the next column's first, too
    for (; column < num_columns() && starts_[column] <= last; ++column) {
      FillColumn(column, first, last, color);
    }
  }

  // One pixel that `color` covers so much, in 256ths.
  void Dot(std::int32_t x, Lanes color, std::int32_t cover) {
    if (x < 0 || x >= kWidth) return;
    std::int32_t column = column_of_[x];
    Lanes& pixel = Mixed(column)[x - starts_[column]];
    pixel = Blend(pixel, color, cover);
    if (x == ends_[column] && column + 1 < num_columns()) Mixed(column + 1)[0] = pixel;
  }

  std::int32_t num_columns() const { return static_cast<std::int32_t>(ends_.size()); }

  // The one colour of all its pixels, or kMixed.
  Lanes color(std::int32_t column) const { return colors_[column]; }

  Sums Sum(std::int32_t column) const {
    // the first column begins with a whole pixel
    const std::int32_t skipped = column == 0 ? 0 : 1;
    const std::int32_t length = ends_[column] - starts_[column];
    if (const Lanes color = colors_[column]; color != kMixed) {
      return {color, color * static_cast<std::uint32_t>(length - skipped), color};
    }
    const Lanes* const pixels = &pixels_[static_cast<std::size_t>(column) * kMostPixels];
    Lanes whole = 0;
    for (std::int32_t i = skipped; i < length; ++i) whole += pixels[i];
    return {pixels[0], whole, pixels[length]};
  }

 private:
  void FillColumn(std::int32_t column, std::int32_t first, std::int32_t last, Lanes color) {
    const std::int32_t start = starts_[column];
    if (first <= start && last >= ends_[column]) {
      colors_[column] = color;
      return;
    }
    Lanes* const pixels = Mixed(column);
    std::fill(pixels + std::max(first - start, 0),
              pixels + std::min(last, ends_[column]) - start + 1, color);
  }
  // Its pixels one by one.
  Lanes* Mixed(std::int32_t column) {
    Lanes* const pixels = &pixels_[static_cast<std::size_t>(column) * kMostPixels];
    if (colors_[column] != kMixed) {
      std::fill_n(pixels, kMostPixels, colors_[column]);
      colors_[column] = kMixed;
    }
    return pixels;
  }

  std::vector<std::int32_t> starts_;  // per column, as are the next two
  std::vector<std::int32_t> ends_;
  std::vector<Lanes> colors_;
  std::vector<Lanes> pixels_;  // of mixed columns, kMostPixels of each
  std::vector<std::int32_t> column_of_;  // the first one that a pixel is in
};

}  // namespace rollouts::race
