// SPDX-License-Identifier: Apache-2.0
#include "race_shrink.h"

#include <algorithm>
#include <cstring>

#include "support/clones.h"

namespace rollouts::race {
namespace {

constexpr std::uint32_t kOne = 0x4000;  // a pixel
constexpr std::uint32_t kShare = 0x4000'0000;

// A 16-bit part of Lanes.
using Lane [[gnu::may_alias]] = std::uint16_t;

// The upper half of a product.
std::uint16_t High(std::uint16_t a, std::uint16_t b) {
  return static_cast<std::uint16_t>(std::uint32_t{a} * b >> 16);
}

// A pixel's share for a weight in 2^-14, in one lane.
std::uint16_t PartOf(std::uint16_t pixel, std::uint16_t weight) {
  return High(static_cast<std::uint16_t>(pixel << 2), weight);
}

// Averages the columns of one colour.
ROLLOUTS_CLONES void AverageColors(const Lane* colors, const std::uint16_t* first_weights,
                                   const std::uint16_t* whole_pixels,
                                   const std::uint16_t* last_weights, std::uint16_t share,
                                   std::size_t num_lanes, Lane* __restrict line) {
  for (std::size_t i = 0; i < num_lanes; ++i) {
    const std::uint16_t color = colors[i];
    const auto sum =
        static_cast<std::uint16_t>(color * whole_pixels[i] + PartOf(color, first_weights[i]) +
                                   PartOf(color, last_weights[i]));
    line[i] = High(sum, share);
  }
}

// Averages the other columns in the same way, but two lanes at a time, in 32 bits each.
ROLLOUTS_CLONES void AverageMixed(const PixelRow& row, const std::uint16_t* first_weights,
                                  const std::uint16_t* last_weights, std::uint32_t share,
                                  Lanes* line) {
  constexpr Lanes kTwo = 0x0000'FFFF'0000'FFFF;
  row.EachMixed([&](std::int32_t column, const PixelRow::Sums& sums) {
    const auto average = [&](int shift) {
      const Lanes first = (sums.first >> shift & kTwo) * first_weights[4 * column] >> 14 & kTwo;
      const Lanes last = (sums.last >> shift & kTwo) * last_weights[4 * column] >> 14 & kTwo;
      return (((sums.whole >> shift & kTwo) + first + last) * share >> 16 & kTwo) << shift;
    };
    line[column] = average(0) | average(16);
  });
}

ROLLOUTS_CLONES void AddLine(const Lane* line, std::size_t num_lanes, Lane* __restrict rows) {
  for (std::size_t i = 0; i < num_lanes; ++i) {
    rows[i] = static_cast<std::uint16_t>(rows[i] + line[i]);
  }
}

// Adds the last line of a group of rows, of which a part belongs to the next group.
ROLLOUTS_CLONES void EndRows(const Lane* line, std::uint16_t before, std::uint16_t after,
                             std::uint16_t share, std::size_t num_lanes, Lane* __restrict rows,
                             Lane* __restrict result) {
  for (std::size_t i = 0; i < num_lanes; ++i) {
    const auto sum = static_cast<std::uint16_t>(rows[i] + PartOf(line[i], before));
    rows[i] = PartOf(line[i], after);
    result[i] = High(sum, share);
  }
}

Lane* LanesIn(std::vector<Lanes>& columns) { return reinterpret_cast<Lane*>(columns.data()); }
const Lane* LanesIn(const std::vector<Lanes>& columns) {
  return reinterpret_cast<const Lane*>(columns.data());
}

// Calls visit(pixel, weight) for the last pixel of each column, with its share in the column in
// 2^-14.
template <typename Visit>
void EachColumn(std::int32_t width, Visit visit) {
  const std::uint32_t space = kOne * PixelRow::kWidth / width;
  std::uint32_t left = space;
  std::int32_t column = 0;
  for (std::int32_t x = 0; x < PixelRow::kWidth && column < width; ++x) {
    if (left > kOne) {
      left -= kOne;
      continue;
    }
    visit(x, left);
    left += space - kOne;
    ++column;
  }
}

}  // namespace

Shrink::Shrink(std::int32_t rows, std::int32_t width, std::int32_t height)
    : width_(width),
      height_(height),
      column_share_(kShare / (kOne * PixelRow::kWidth / width)),
      row_space_(kOne * rows / height),
      columns_(Ends(width)) {
  row_share_ = kShare / row_space_;
  for (auto* each : {&line_, &rows_, &result_}) each->resize(width);
  SetWeights();
}

std::vector<std::int32_t> Shrink::Ends(std::int32_t width) {
  std::vector<std::int32_t> ends;
  EachColumn(width, [&](std::int32_t x, std::uint32_t) { ends.push_back(x); });
  return ends;
}

void Shrink::SetWeights() {
  std::uint32_t first = 0;
  std::int32_t start = -1;
  EachColumn(width_, [&](std::int32_t end, std::uint32_t last) {
    const auto add = [](std::vector<std::uint16_t>& lanes, std::uint32_t value) {
      lanes.insert(lanes.end(), 4, static_cast<std::uint16_t>(value));
    };
    add(first_weights_, first);
    add(whole_pixels_, end - start - 1);
    add(last_weights_, last);
    first = kOne - last;
    start = end;
  });
}

void Shrink::Begin(std::uint8_t* rgb) {
  rgb_ = rgb;
  row_left_ = row_space_;
  std::ranges::fill(rows_, Lanes{0});
}

void Shrink::TakeRow(const PixelRow& row) {
  const std::size_t lanes = first_weights_.size();
  AverageColors(LanesIn(row.colors()), first_weights_.data(), whole_pixels_.data(),
                last_weights_.data(), static_cast<std::uint16_t>(column_share_), lanes,
                LanesIn(line_));
  AverageMixed(row, first_weights_.data(), last_weights_.data(), column_share_, line_.data());
  TakeSameRow();
}

void Shrink::TakeSameRow() {
  if (row_left_ > kOne) {
    AddLine(LanesIn(line_), first_weights_.size(), LanesIn(rows_));
    row_left_ -= kOne;
    return;
  }
  WriteRow();
}

void Shrink::WriteRow() {
  EndRows(LanesIn(line_), static_cast<std::uint16_t>(row_left_),
          static_cast<std::uint16_t>(kOne - row_left_), static_cast<std::uint16_t>(row_share_),
          first_weights_.size(), LanesIn(rows_), LanesIn(result_));
  // writes four bytes at a time, of which the next write replaces the last one
  for (std::size_t i = 0; i < result_.size(); ++i) {
    const Lanes pixel = result_[i];
    const auto bytes = static_cast<std::uint32_t>((pixel & 0xFF) | (pixel >> 8 & 0xFF00) |
                                                  (pixel >> 16 & 0xFF'0000));
    std::memcpy(rgb_, &bytes, i + 1 < result_.size() ? 4 : 3);
    rgb_ += 3;
  }
  row_left_ += row_space_ - kOne;
}

}  // namespace rollouts::race
