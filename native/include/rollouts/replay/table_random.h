// SPDX-License-Identifier: Apache-2.0
// The random stream of one table: a pure function of its seed and the number of draws.
#pragma once

#include <cstdint>

#include "rollouts/core/rng.h"

namespace rollouts::replay {

class TableRandom {
 public:
  explicit TableRandom(std::uint64_t seed, std::uint64_t draws = 0) : seed_(seed), draws_(draws) {}

  // Uniform in [0, 1) with 53 random bits. Two draws share a Philox block.
  double Uniform() {
    const std::uint64_t index = draws_ / 2;
    if (index + 1 != cached_) {
      block_ = Philox4x32(PhiloxBlock{{static_cast<std::uint32_t>(index),
                                       static_cast<std::uint32_t>(index >> 32), kReplay, 0}},
                          static_cast<std::uint32_t>(seed_),
                          static_cast<std::uint32_t>(seed_ >> 32));
      cached_ = index + 1;
    }
    const std::size_t word = draws_++ % 2 * 2;
    return UniformOf(block_.word[word], block_.word[word + 1]);
  }

  // Uniform in {0, ..., n - 1}; n > 0 and below 2^32. Its bias is below n / 2^53.
  std::int64_t Below(std::int64_t n) {
    return static_cast<std::int64_t>(Uniform() * static_cast<double>(n));
  }

  std::uint64_t seed() const { return seed_; }
  std::uint64_t draws() const { return draws_; }

 private:
  static constexpr std::uint32_t kReplay = 0x5245504Cu;  // apart from the environments' streams

  std::uint64_t seed_;
  std::uint64_t draws_;
  std::uint64_t cached_ = 0;
  PhiloxBlock block_{};
};

}  // namespace rollouts::replay
