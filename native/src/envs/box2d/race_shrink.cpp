// SPDX-License-Identifier: Apache-2.0
#include "race_shrink.h"

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

}  // namespace

Shrink::Shrink(std::int32_t width, std::int32_t height, std::uint8_t* rgb)
    : width_(width), rgb_(rgb) {
  const std::uint32_t column_space = kOne * Canvas::kWidth / width;
  row_space_ = kOne * Canvas::kHeight / height;
  column_share_ = kShare / column_space;
  row_share_ = kShare / row_space_;
  row_left_ = row_space_;

  const std::size_t lanes = 4 * static_cast<std::size_t>(width);
  for (auto* each : {&first_weights_, &last_weights_, &first_, &whole_, &last_, &line_, &rows_}) {
    each->resize(lanes);
  }
  std::uint32_t left = column_space;
  std::int32_t first = 0;
  std::uint32_t first_weight = 0;
  for (std::int32_t x = 0; x < Canvas::kWidth; ++x) {
    if (left > kOne) {
      left -= kOne;
      continue;
    }
    const std::size_t at = 4 * columns_.size();
    if (at == lanes) break;
    for (std::size_t lane = at; lane < at + 4; ++lane) {
      first_weights_[lane] = static_cast<std::uint16_t>(first_weight);
      last_weights_[lane] = static_cast<std::uint16_t>(left);
    }
    columns_.push_back({first, x});
    first = x;
    first_weight = kOne - left;
    left += column_space - kOne;
  }
}

void Shrink::Sum(const Lanes* row) {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const Column column = columns_[i];
    // the first column begins with a whole pixel
    std::int32_t x = i == 0 ? 0 : column.first + 1;
    Lanes whole = 0;
    for (; x < column.last; ++x) whole += row[x];
    std::memcpy(&first_[4 * i], &row[column.first], sizeof(Lanes));
    std::memcpy(&whole_[4 * i], &whole, sizeof(Lanes));
    std::memcpy(&last_[4 * i], &row[column.last], sizeof(Lanes));
  }
}

void Shrink::TakeRow(const Lanes* row) {
  Sum(row);
  const std::size_t lanes = line_.size();
  const auto share = static_cast<std::uint16_t>(column_share_);
  for (std::size_t i = 0; i < lanes; ++i) {
    const auto sum = static_cast<std::uint16_t>(whole_[i] + PartOf(first_[i], first_weights_[i]) +
                                                PartOf(last_[i], last_weights_[i]));
    line_[i] = High(sum, share);
  }
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
    line_[i] = High(sum, share);
  }
  for (std::int32_t x = 0; x < width_; ++x) {
    for (std::int32_t c = 0; c < 3; ++c) *rgb_++ = static_cast<std::uint8_t>(line_[4 * x + c]);
  }
  row_left_ += row_space_ - kOne;
}

}  // namespace rollouts::race
