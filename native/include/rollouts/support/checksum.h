// SPDX-License-Identifier: Apache-2.0
// A checksum of bytes that come in pieces. It finds damage, not forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rollouts {

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
