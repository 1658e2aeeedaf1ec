// SPDX-License-Identifier: Apache-2.0
// The score in the panel of CarRacing: white digits drawn for this library, as wide and as heavy as
// those of pygame's font, whose own outlines are under another licence.
#pragma once

#include <cstdint>
#include <string>

#include "pixel_row.h"

namespace rollouts::race {

class Digits {
 public:
  // Writes the score without decimals, in at least four characters.
  explicit Digits(double score);

  // Tells if a row differs from the one above it.
  static bool Changes(std::int32_t y);

  void PaintRow(std::int32_t y, PixelRow& row) const;

 private:
  std::string text_;
  std::int32_t left_ = 0;
};

}  // namespace rollouts::race
