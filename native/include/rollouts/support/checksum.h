// SPDX-License-Identifier: Apache-2.0
// A checksum of bytes that come in pieces. It finds damage, not forgery.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rollouts {

inline constexpr std::uint64_t kChecksumPrime = 0x9E3779B185EBCA87u;

// A bijection of the word, and of the lane: a change of one of them always shows.
constexpr std::uint64_t Mixed(std::uint64_t lane, std::uint64_t word) {
  return std::rotl((lane ^ word) * kChecksumPrime, 29);
}

class Checksum {
 public:
  void Add(std::span<const std::uint8_t> bytes);
  std::uint64_t value() const;

 private:
  static constexpr std::size_t kBlock = 32;
  void AddBlock(const std::uint8_t* block);

  std::uint64_t lane_[4] = {1, 2, 3, 4};
  std::uint64_t count_ = 0;
  std::uint8_t rest_[kBlock] = {};
};

}  // namespace rollouts
