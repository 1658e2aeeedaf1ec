// SPDX-License-Identifier: Apache-2.0
// Observations of either precision.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rollouts {

// Writes an observation element by element, or counts its elements.
class ObservationWriter {
 public:
  // `out` may be null: nothing is written then.
  ObservationWriter(std::uint8_t* out, bool single) : out_(out), single_(single) {}

  std::int32_t size() const { return size_; }
  std::int64_t bytes() const { return std::int64_t{single_ ? 4 : 8} * size_; }
  void Put(double value) {
    if (out_ && single_) {
      reinterpret_cast<float*>(out_)[size_] = static_cast<float>(value);
    } else if (out_) {
      reinterpret_cast<double*>(out_)[size_] = value;
    }
    ++size_;
  }
  void Put(const double* values, std::int32_t count) {
    if (out_ && !single_) {
      std::copy_n(values, count, reinterpret_cast<double*>(out_) + size_);
      size_ += count;
    } else {
      for (std::int32_t i = 0; i < count; ++i) Put(values[i]);
    }
  }
  void PutClipped(const double* values, std::int32_t count, double low, double high) {
    for (std::int32_t i = 0; i < count; ++i) Put(std::min(std::max(values[i], low), high));
  }

 private:
  std::uint8_t* const out_;
  const bool single_;
  std::int32_t size_ = 0;
};

}  // namespace rollouts
