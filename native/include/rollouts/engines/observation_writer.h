// SPDX-License-Identifier: Apache-2.0
// Observations as float or double.
#pragma once

#include "rollouts/core/platform.h"

namespace rollouts {

// Writes an observation element by element, or counts its elements.
class ObservationWriter {
 public:
  // Writes nothing where `out` is null.
  ROLLOUTS_HD ObservationWriter(std::uint8_t* out, bool single) : out_(out), single_(single) {}

  ROLLOUTS_HD std::int32_t size() const { return size_; }
  ROLLOUTS_HD std::int64_t bytes() const { return std::int64_t{single_ ? 4 : 8} * size_; }
  ROLLOUTS_HD void Put(double value) {
    if (out_ && single_) {
      reinterpret_cast<float*>(out_)[size_] = static_cast<float>(value);
    } else if (out_) {
      reinterpret_cast<double*>(out_)[size_] = value;
    }
    ++size_;
  }
  template <typename Number>
  ROLLOUTS_HD void Put(const Number* values, std::int32_t count) {
    if (out_ && single_ == (sizeof(Number) == 4)) {
      CopyBytes(reinterpret_cast<Number*>(out_) + size_, values, sizeof(Number) * count);
      size_ += count;
    } else {
      for (std::int32_t i = 0; i < count; ++i) Put(values[i]);
    }
  }
  template <typename Number>
  ROLLOUTS_HD void PutClipped(const Number* values, std::int32_t count, double low, double high) {
    for (std::int32_t i = 0; i < count; ++i) {
      // as NumPy does, even where low is above high
      const double raised = values[i] < low ? low : values[i];
      Put(high < raised ? high : raised);
    }
  }

 private:
  std::uint8_t* const out_;
  const bool single_;
  std::int32_t size_ = 0;
};

}  // namespace rollouts
