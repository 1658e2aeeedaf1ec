// SPDX-License-Identifier: Apache-2.0
// The tape of an episode of Box2D: the numbers that it drew and its actions. A world cannot be
// copied, but the same numbers and actions make the same world again, bit for bit.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "rollouts/core/rng.h"
#include "rollouts/support/errors.h"

namespace rollouts {

// Draws numbers from an Rng and keeps them, or returns numbers that were kept before.
class TapeDraws {
 public:
  // Borrows all arguments. The first numbers are those of `again`, which are kept as well.
  TapeDraws(Rng& rng, std::vector<double>& kept, std::span<const double> again = {})
      : rng_(&rng), kept_(&kept), again_(again) {}
  explicit TapeDraws(std::span<const double> again) : again_(again) {}

  double Uniform(double low, double high) {
    if (IsDrawn()) return Keep(rng_->Uniform(low, high));
    const double value = Next();
    if (!(value >= low && value <= high)) throw SpecError("has a number out of range");
    return Keep(value);
  }

  // Uniform in low, ..., high - 1, like numpy's integers.
  std::int32_t Integer(std::int32_t low, std::int32_t high) {
    const auto count = static_cast<std::uint32_t>(high - low);
    if (IsDrawn()) {
      return static_cast<std::int32_t>(Keep(low + static_cast<double>(rng_->Below(count))));
    }
    const double value = Next();
    if (!(value >= low && value < high) || value != std::floor(value)) {
      throw SpecError("has a number out of range");
    }
    return static_cast<std::int32_t>(Keep(value));
  }

  bool at_end() const { return again_.empty(); }

 private:
  bool IsDrawn() const { return rng_ != nullptr && again_.empty(); }
  double Keep(double value) {
    if (kept_ != nullptr) kept_->push_back(value);
    return value;
  }
  double Next() {
    if (again_.empty()) throw SpecError("is shorter than its parts");
    const double value = again_.front();
    again_ = again_.subspan(1);
    return value;
  }

  Rng* rng_ = nullptr;
  std::vector<double>* kept_ = nullptr;
  std::span<const double> again_;
};

}  // namespace rollouts
