// SPDX-License-Identifier: Apache-2.0
#include "screen.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace rollouts {
namespace {

// Tells if two rows differ, without a branch per word.
bool Differ(const std::uint8_t* a, const std::uint8_t* b, std::size_t size) {
  std::uint64_t difference = 0;
  std::size_t i = 0;
  for (; i + sizeof(std::uint64_t) <= size; i += sizeof(std::uint64_t)) {
    std::uint64_t x;
    std::uint64_t y;
    std::memcpy(&x, a + i, sizeof(x));
    std::memcpy(&y, b + i, sizeof(y));
    difference |= x ^ y;
  }
  for (; i < size; ++i) difference |= a[i] ^ b[i];
  return difference != 0;
}

}  // namespace

AtariScreen::AtariScreen(const Options& options, const AlePalette& palette)
    : options_(options),
      palette_(palette),
      row_bytes_(options.raw_width * (options.grayscale ? 1 : 3)),
      frame_bytes_(options.height * options.width * (options.grayscale ? 1 : 3)),
      resize_(options.raw_height, options.raw_width, options.height, options.width,
              options.grayscale ? 1 : 3, options.resize_by_area),
      pooled_(static_cast<std::size_t>(options.raw_height) * row_bytes_),
      pooled_dirty_(options.raw_height, 1),
      row_(2 * static_cast<std::size_t>(row_bytes_)),
      stack_(options.stack_num, static_cast<std::size_t>(frame_bytes_)) {
  // raw screens are kept, so that a row that did not change costs one comparison
  for (Capture* capture : {&earlier_, &last_}) {
    capture->raw.resize(static_cast<std::size_t>(options.raw_height) * options.raw_width);
    capture->changed.resize(options.raw_height);
  }
}

void AtariScreen::Clear() {
  stack_.Clear();
  std::fill(pooled_dirty_.begin(), pooled_dirty_.end(), std::uint8_t{1});
  earlier_.fresh = earlier_.valid = false;
  last_.fresh = last_.valid = false;
  empty_ = true;
}

void AtariScreen::CaptureEarlier(const std::uint8_t* raw) {
  // without maxpool the earlier screen is not used
  if (options_.maxpool) Take(raw, earlier_);
}

void AtariScreen::CaptureLast(const std::uint8_t* raw) { Take(raw, last_); }

void AtariScreen::Take(const std::uint8_t* raw, Capture& capture) {
  const std::size_t width = static_cast<std::size_t>(options_.raw_width);
  // without a screen to compare with, all rows count as changed
  if (!capture.valid) {
    std::memcpy(capture.raw.data(), raw, capture.raw.size());
    std::fill(capture.changed.begin(), capture.changed.end(), std::uint8_t{1});
  } else {
    for (std::int32_t y = 0; y < options_.raw_height; ++y) {
      std::uint8_t* const kept = capture.raw.data() + y * width;
      const bool changed = Differ(raw + y * width, kept, width);
      capture.changed[y] = changed;
      if (changed) std::memcpy(kept, raw + y * width, width);
    }
  }
  capture.fresh = true;
}

void AtariScreen::Push() {
  // a step that ended early has only the earlier screen, or none
  if (last_.fresh) {
    PoolChangedRows();
  } else if (earlier_.fresh) {
    PoolEarlierIntoPooled();
  }
  earlier_.fresh = last_.fresh = false;

  const std::uint8_t* const previous = stack_.newest();
  ResizeChangedRows(empty_ ? nullptr : previous, stack_.Push());
  empty_ = false;
}

void AtariScreen::Colour(const std::uint8_t* raw_row, std::uint8_t* out) const {
  if (options_.grayscale) {
    for (std::int32_t x = 0; x < options_.raw_width; ++x) out[x] = palette_.gray[raw_row[x]];
  } else {
    for (std::int32_t x = 0; x < options_.raw_width; ++x) {
      std::memcpy(out + 3 * x, palette_.rgb[raw_row[x]].data(), 3);
    }
  }
}

// Computes a pooled row from the captured screens and marks it if it changed.
void AtariScreen::PoolRow(std::int32_t y) {
  const std::size_t width = static_cast<std::size_t>(options_.raw_width);
  const std::uint8_t* const last = last_.raw.data() + y * width;
  const std::uint8_t* const earlier = earlier_.raw.data() + y * width;
  std::uint8_t* const colours = row_.data();
  Colour(last, colours);
  // either of two equal rows is their maximum
  if (earlier_.fresh && Differ(last, earlier, width)) {
    std::uint8_t* const others = row_.data() + row_bytes_;
    Colour(earlier, others);
    for (std::int32_t x = 0; x < row_bytes_; ++x) colours[x] = std::max(colours[x], others[x]);
  }

  std::uint8_t* const pooled = pooled_.data() + static_cast<std::ptrdiff_t>(y) * row_bytes_;
  // different palette indices may have the same colour
  if (Differ(colours, pooled, row_bytes_)) {
    std::memcpy(pooled, colours, row_bytes_);
    pooled_dirty_[y] = 1;
  }
}

void AtariScreen::PoolChangedRows() {
  // after a reset or an early end, pooled_ is not the maximum of the two screens
  const bool all = !last_.valid || (earlier_.fresh && !earlier_.valid);
  for (std::int32_t y = 0; y < options_.raw_height; ++y) {
    if (all || last_.changed[y] || (earlier_.fresh && earlier_.changed[y])) PoolRow(y);
  }
  earlier_.valid = earlier_.fresh;
  last_.valid = true;
}

void AtariScreen::PoolEarlierIntoPooled() {
  const std::size_t width = static_cast<std::size_t>(options_.raw_width);
  for (std::int32_t y = 0; y < options_.raw_height; ++y) {
    std::uint8_t* const pooled = pooled_.data() + static_cast<std::ptrdiff_t>(y) * row_bytes_;
    Colour(earlier_.raw.data() + y * width, row_.data());
    for (std::int32_t x = 0; x < row_bytes_; ++x) pooled[x] = std::max(pooled[x], row_[x]);
  }
  std::fill(pooled_dirty_.begin(), pooled_dirty_.end(), std::uint8_t{1});
  // the next step must pool all rows, because pooled_ is now made of three screens
  earlier_.valid = last_.valid = false;
}

// `previous` is the newest frame so far; null when there is none.
void AtariScreen::ResizeChangedRows(const std::uint8_t* previous, std::uint8_t* frame) {
  const std::int32_t row_bytes = frame_bytes_ / options_.height;
  resize_.BeginImage();
  for (std::int32_t y = 0; y < options_.height; ++y) {
    const auto [first, last] = resize_.SourceRows(y);
    const auto begin = pooled_dirty_.begin();
    // computes a row of the frame if one of the rows that it averages has changed
    const bool dirty = !previous || std::find(begin + first, begin + last + 1, 1) !=
                                        begin + last + 1;
    std::uint8_t* const row = frame + static_cast<std::ptrdiff_t>(y) * row_bytes;
    if (dirty) {
      resize_.ComputeRow(pooled_.data(), y, row);
    } else if (row != previous + static_cast<std::ptrdiff_t>(y) * row_bytes) {
      // not with stack_num 1, where the row is in place already
      std::memcpy(row, previous + static_cast<std::ptrdiff_t>(y) * row_bytes, row_bytes);
    }
  }
  std::fill(pooled_dirty_.begin(), pooled_dirty_.end(), std::uint8_t{0});
}

void AtariScreen::Observe(std::uint8_t* obs) const { stack_.CopyTo(obs); }

void AtariScreen::Save(StateWriter& writer) const {
  // captured screens only save work, and need not be saved
  writer.Put(stack_.newest_slot());
  writer.PutBytes(pooled_);
  writer.PutBytes(stack_.bytes());
}

void AtariScreen::Load(StateReader& reader) {
  const auto newest = reader.Get<std::int32_t>();
  const auto pooled = reader.GetBytes(pooled_.size());
  const auto stack = reader.GetBytes(stack_.bytes().size());
  // the state was saved with other options, such as another size
  if (!stack_.Has(newest) || !reader.rest().empty()) {
    throw SpecError("does not fit the screen");
  }
  // captured screens do not belong to this state
  Clear();
  std::copy(pooled.begin(), pooled.end(), pooled_.begin());
  stack_.Restore(newest, stack);
  // the newest frame was made of pooled_
  std::fill(pooled_dirty_.begin(), pooled_dirty_.end(), std::uint8_t{0});
  empty_ = false;
}

}  // namespace rollouts
