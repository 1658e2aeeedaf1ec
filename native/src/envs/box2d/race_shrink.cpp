// SPDX-License-Identifier: Apache-2.0
#include "race_shrink.h"

#include <algorithm>
#include <cstring>

namespace rollouts::race {
namespace {

constexpr std::uint32_t kOne = 0x4000;  // a pixel
constexpr std::uint32_t kShare = 0x4000'0000;

// The upper half of a product.
std::uint16_t High(std::uint16_t a, std::uint16_t b) {
  return static_cast<std::uint16_t>(std::uint32_t{a} * b >> 16);
}

// Of a pixel, in a lane: its part of so many 2^-14.
std::uint16_t PartOf(std::uint16_t pixel, std::uint16_t weight) {
  return High(static_cast<std::uint16_t>(pixel << 2), weight);
}

// Calls visit(pixel, weight) for the last pixel of each column and its part in that, in 2^-14.
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

Shrink::Shrink(std::int32_t rows, std::int32_t width, std::int32_t height, std::uint8_t* rgb)
    : width_(width),
      rgb_(rgb),
      column_share_(kShare / (kOne * PixelRow::kWidth / width)),
      row_space_(kOne * rows / height),
      row_(Ends(width)) {
  row_share_ = kShare / row_space_;
  row_left_ = row_space_;
  for (auto* each : {&first_weights_, &last_weights_, &line_, &rows_, &result_}) {
    each->resize(4 * static_cast<std::size_t>(width));
  }
  before_.assign(width, PixelRow::kMixed);
  SetWeights();
}

std::vector<std::int32_t> Shrink::Ends(std::int32_t width) {
  std::vector<std::int32_t> ends;
  EachColumn(width, [&](std::int32_t x, std::uint32_t) { ends.push_back(x); });
  return ends;
}

void Shrink::SetWeights() {
  std::uint32_t first = 0;
  std::size_t at = 0;
  EachColumn(width_, [&](std::int32_t, std::uint32_t last) {
    std::fill_n(first_weights_.begin() + at, 4, static_cast<std::uint16_t>(first));
    std::fill_n(last_weights_.begin() + at, 4, static_cast<std::uint16_t>(last));
    first = kOne - last;
    at += 4;
  });
}

void Shrink::Average(std::int32_t column) {
  const PixelRow::Sums sums = row_.Sum(column);
  std::uint16_t first[4];
  std::uint16_t whole[4];
  std::uint16_t last[4];
  std::memcpy(first, &sums.first, sizeof(Lanes));
  std::memcpy(whole, &sums.whole, sizeof(Lanes));
  std::memcpy(last, &sums.last, sizeof(Lanes));
  const auto share = static_cast<std::uint16_t>(column_share_);
  const std::size_t at = 4 * static_cast<std::size_t>(column);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto sum = static_cast<std::uint16_t>(whole[i] + PartOf(first[i], first_weights_[at + i]) +
                                                PartOf(last[i], last_weights_[at + i]));
    line_[at + i] = High(sum, share);
  }
}

void Shrink::TakeRow() {
  // most columns have the colour of the row before
  for (std::int32_t column = 0; column < width_; ++column) {
    const Lanes color = row_.color(column);
    if (color == before_[column] && color != PixelRow::kMixed) continue;
    before_[column] = color;
    Average(column);
  }
  const std::size_t lanes = line_.size();
  if (row_left_ > kOne) {
    for (std::size_t i = 0; i < lanes; ++i) rows_[i] = static_cast<std::uint16_t>(rows_[i] + line_[i]);
    row_left_ -= kOne;
    return;
  }
  WriteRow();
}

void Shrink::WriteRow() {
  const auto before = static_cast<std::uint16_t>(row_left_);
  const auto after = static_cast<std::uint16_t>(kOne - row_left_);
  const auto share = static_cast<std::uint16_t>(row_share_);
  for (std::size_t i = 0; i < line_.size(); ++i) {
    const auto sum = static_cast<std::uint16_t>(rows_[i] + PartOf(line_[i], before));
    rows_[i] = PartOf(line_[i], after);
    result_[i] = High(sum, share);
  }
  for (std::size_t i = 0; i < result_.size(); i += 4) {
    for (std::size_t c = 0; c < 3; ++c) *rgb_++ = static_cast<std::uint8_t>(result_[i + c]);
  }
  row_left_ += row_space_ - kOne;
}

}  // namespace rollouts::race
