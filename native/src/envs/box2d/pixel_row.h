// SPDX-License-Identifier: Apache-2.0
// A row of pixels to be averaged over columns. A column has several whole pixels, and parts of two
// that it shares with its neighbours. A column of one colour, as most are, is kept as that colour
// alone.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

namespace rollouts::race {

// A pixel: red, green and blue in 16 bits each, from the lowest, so that sums of them fit.
using Lanes = std::uint64_t;

constexpr Lanes LanesOf(std::uint32_t red, std::uint32_t green, std::uint32_t blue) {
  return Lanes{red} | Lanes{green} << 16 | Lanes{blue} << 32;
}

// Draws `above` over `below`, of which it covers `cover` 256ths (at most 255); rounds down.
inline Lanes Blend(Lanes below, Lanes above, std::uint32_t cover) {
  constexpr Lanes kBytes = LanesOf(255, 255, 255);
  return (below * (256 - cover) + above * cover) >> 8 & kBytes;
}

// The columns into which rows of pixels are cut.
class PixelColumns {
 public:
  static constexpr std::int32_t kWidth = 1000;  // a row's
  static constexpr std::int32_t kMostPixels = 12;  // in a column

  // The place of a pixel.
  struct Place {
    std::uint16_t column;  // the first column that contains it
    std::uint16_t index;   // in that column
    std::uint16_t from;    // the first column whose pixels all lie at or after it
    std::uint16_t to;      // the first column with a pixel after it
  };
  // Masks of a column's pixels that count as a whole.
  struct alignas(32) Masks {
    std::array<Lanes, kMostPixels> whole{};
  };

  // `ends`: the last pixel of each column, which is also the first of the next.
  explicit PixelColumns(const std::vector<std::int32_t>& ends);

  std::int32_t count() const { return static_cast<std::int32_t>(masks_.size()); }
  Place At(std::int32_t x) const { return places_[x]; }
  const Masks& masks(std::int32_t column) const { return masks_[column]; }
  std::int32_t last(std::int32_t column) const { return lasts_[column]; }

 private:
  std::vector<Place> places_;
  std::vector<Masks> masks_;
  std::vector<std::int32_t> lasts_;  // index of each column's last pixel
};

class PixelRow {
 public:
  static constexpr std::int32_t kWidth = PixelColumns::kWidth;
  static constexpr Lanes kMixed = ~Lanes{0};  // no colour

  // Sums of a column's pixels; the first and the last one count only in part.
  struct Sums {
    Lanes first;
    Lanes whole;
    Lanes last;
  };

  // Borrows the columns.
  explicit PixelRow(const PixelColumns& columns);

  // Clears the row to one colour.
  void Clear(Lanes color) {
    std::fill(colors_.begin(), colors_.end(), color);
    std::fill(mixed_.begin(), mixed_.end(), 0);
  }

  // Fills pixels first to last; pixels outside the row are ignored.
  void Fill(std::int32_t first, std::int32_t last, Lanes color) {
    first = std::max(first, 0);
    last = std::min(last, kWidth - 1);
    if (first > last) return;
    const PixelColumns::Place left = columns_->At(first);
    const PixelColumns::Place right = columns_->At(last);
    const std::int32_t end = right.column == right.to ? right.index : 0;
    if (left.from > right.to) {
      FillColumn(right.to, left.index, end, color);
      return;
    }
    if (left.from > 0) FillColumn(left.from - 1, left.index, kMostPixels - 1, color);
    std::fill(colors_.begin() + left.from, colors_.begin() + right.to, color);
    if (right.to < columns_->count()) FillColumn(right.to, 0, end, color);
  }

  // Draws one pixel, of which `color` covers `cover` 256ths.
  void Dot(std::int32_t x, Lanes color, std::uint32_t cover) {
    if (x < 0 || x >= kWidth) return;
    const PixelColumns::Place place = columns_->At(x);
    Lanes& pixel = Mixed(place.column)[place.index];
    pixel = Blend(pixel, color, cover);
    // a column's last pixel is also the first of the next column
    if (place.to > place.column && place.to < columns_->count()) Mixed(place.to)[0] = pixel;
  }

  // For each column, the one colour of all its pixels, or kMixed.
  const std::vector<Lanes>& colors() const { return colors_; }

  // Visits the columns with more than one colour.
  template <typename Visit>
  void EachMixed(Visit visit) const {
    for (std::size_t word = 0; word < mixed_.size(); ++word) {
      for (std::uint64_t bits = mixed_[word]; bits != 0; bits &= bits - 1) {
        const auto column = static_cast<std::int32_t>(64 * word + std::countr_zero(bits));
        if (colors_[column] == kMixed) visit(column, Sum(column));
      }
    }
  }

 private:
  static constexpr std::int32_t kMostPixels = PixelColumns::kMostPixels;

  struct alignas(32) Pixels {
    std::array<Lanes, kMostPixels> at;
  };

  Sums Sum(std::int32_t column) const {
    const auto& pixels = pixels_[column].at;
    const auto& masks = columns_->masks(column).whole;
    // written as sums of vectors, because GCC does not vectorise them otherwise
    typedef Lanes Four __attribute__((vector_size(4 * sizeof(Lanes))));
    Four whole{};
    for (std::size_t i = 0; i < kMostPixels; i += 4) {
      Four four;
      Four mask;
      std::memcpy(&four, &pixels[i], sizeof(four));
      std::memcpy(&mask, &masks[i], sizeof(mask));
      whole += four & mask;
    }
    return {pixels[0], (whole[0] + whole[1]) + (whole[2] + whole[3]),
            pixels[columns_->last(column)]};
  }

  // Fills pixels of a column from first to last. Uses masks, because their number varies.
  void FillColumn(std::int32_t column, std::int32_t first, std::int32_t last, Lanes color) {
    auto& pixels = pixels_[column].at;
    const Lanes* const from = &kFrom[kMostPixels - first];
    const Lanes* const beyond = &kFrom[kMostPixels - 1 - last];
    const Lanes before = colors_[column];
    if (before == kMixed) {
      for (std::int32_t i = 0; i < kMostPixels; ++i) {
        const Lanes is_filled = from[i] & ~beyond[i];
        pixels[i] = (pixels[i] & ~is_filled) | (color & is_filled);
      }
      return;
    }
    for (std::int32_t i = 0; i < kMostPixels; ++i) {
      const Lanes is_filled = from[i] & ~beyond[i];
      pixels[i] = (before & ~is_filled) | (color & is_filled);
    }
    SetMixed(column);
  }
  // Turns a column into one of several colours, and returns its pixels.
  Lanes* Mixed(std::int32_t column) {
    auto& pixels = pixels_[column].at;
    if (const Lanes color = colors_[column]; color != kMixed) {
      pixels.fill(color);
      SetMixed(column);
    }
    return pixels.data();
  }
  void SetMixed(std::int32_t column) {
    colors_[column] = kMixed;
    mixed_[column / 64] |= std::uint64_t{1} << column % 64;
  }

  // Masks, first empty and then full: a window that begins n masks before the middle has all but
  // its first n pixels.
  static constexpr std::array<Lanes, 2 * kMostPixels> kFrom = [] {
    std::array<Lanes, 2 * kMostPixels> masks{};
    std::fill(masks.begin() + kMostPixels, masks.end(), ~Lanes{0});
    return masks;
  }();

  const PixelColumns* columns_;
  std::vector<Lanes> colors_;
  std::vector<Pixels> pixels_;        // for mixed columns
  std::vector<std::uint64_t> mixed_;  // columns that became mixed, as bits; some have one colour again
};

}  // namespace rollouts::race
