// SPDX-License-Identifier: Apache-2.0
// A row of pixels that is to be averaged over columns, each of several pixels and parts of two that
// it shares with its neighbours. A column of one colour, as most are, is kept as that colour alone.
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

// `above` on `below`, of which it covers so much in 256ths, 255 at most; rounded down.
inline Lanes Blend(Lanes below, Lanes above, std::uint32_t cover) {
  constexpr Lanes kBytes = LanesOf(255, 255, 255);
  return (below * (256 - cover) + above * cover) >> 8 & kBytes;
}

// The columns into which rows of pixels are cut.
class PixelColumns {
 public:
  static constexpr std::int32_t kWidth = 1000;  // a row's
  static constexpr std::int32_t kMostPixels = 12;  // in a column

  // A pixel's.
  struct Place {
    std::uint16_t column;  // the first one that it is in
    std::uint16_t index;   // in that column
    std::uint16_t from;    // the first column that has no pixel before it
    std::uint16_t to;      // the first column that has a pixel behind it
  };
  // Masks of the pixels that count as a whole.
  struct alignas(32) Masks {
    std::array<Lanes, kMostPixels> whole{};
  };

  // `ends`: the last pixel of each column, which is the next column's first.
  explicit PixelColumns(const std::vector<std::int32_t>& ends);

  std::int32_t count() const { return static_cast<std::int32_t>(masks_.size()); }
  Place At(std::int32_t x) const { return places_[x]; }
  const Masks& masks(std::int32_t column) const { return masks_[column]; }
  std::int32_t last(std::int32_t column) const { return lasts_[column]; }

 private:
  std::vector<Place> places_;
  std::vector<Masks> masks_;
  std::vector<std::int32_t> lasts_;  // the index of a column's last pixel
};

class PixelRow {
 public:
  static constexpr std::int32_t kWidth = PixelColumns::kWidth;
  static constexpr Lanes kMixed = ~Lanes{0};  // no colour

  // Sums of a column's pixels: its first and last one count in part.
  struct Sums {
    Lanes first;
    Lanes whole;
    Lanes last;
  };

  // Borrows the columns.
  explicit PixelRow(const PixelColumns& columns);

  // Begins a row.
  void Clear(Lanes color) {
    std::fill(colors_.begin(), colors_.end(), color);
    std::fill(mixed_.begin(), mixed_.end(), 0);
  }

  // Pixels from first to last; those outside the row are left out.
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

  // One pixel that `color` covers so much, in 256ths.
  void Dot(std::int32_t x, Lanes color, std::uint32_t cover) {
    if (x < 0 || x >= kWidth) return;
    const PixelColumns::Place place = columns_->At(x);
    Lanes& pixel = Mixed(place.column)[place.index];
    pixel = Blend(pixel, color, cover);
    // the last one is the next column's first
    if (place.to > place.column && place.to < columns_->count()) Mixed(place.to)[0] = pixel;
  }

  // Per column: the one colour of all its pixels, or kMixed.
  const std::vector<Lanes>& colors() const { return colors_; }

  // Visits those of more than one colour.
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
    // GCC leaves these sums one by one, if they are not written as those of vectors
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

  // Pixels of a column from first to last, by masks, as their number is different each time.
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
  // Its pixels one by one.
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

  // No pixels, then all: from the n-th last on, all but the first n.
  static constexpr std::array<Lanes, 2 * kMostPixels> kFrom = [] {
    std::array<Lanes, 2 * kMostPixels> masks{};
    std::fill(masks.begin() + kMostPixels, masks.end(), ~Lanes{0});
    return masks;
  }();

  const PixelColumns* columns_;
  std::vector<Lanes> colors_;
  std::vector<Pixels> pixels_;        // for mixed columns
  std::vector<std::uint64_t> mixed_;  // a bit per column that became one; some have a colour again
};

}  // namespace rollouts::race
