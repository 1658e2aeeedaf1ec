// SPDX-License-Identifier: Apache-2.0
#include "rollouts/support/checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace rollouts {

// Four interleaved hashes of 64-bit words. As fast as memory, unlike FNV-1a, which takes one byte at a
// time.
void Checksum::AddBlock(const std::uint8_t* block) {
  for (std::size_t i = 0; i < 4; ++i) {
    std::uint64_t word;
    std::memcpy(&word, block + 8 * i, sizeof(word));
    lane_[i] = Mixed(lane_[i], word);
  }
}

void Checksum::Add(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return;
  const std::size_t kept = count_ % kBlock;
  count_ += bytes.size();
  // pieces may end anywhere: the rest of a block waits for the next piece
  if (kept > 0) {
    const std::size_t taken = std::min(kBlock - kept, bytes.size());
    std::memcpy(rest_ + kept, bytes.data(), taken);
    bytes = bytes.subspan(taken);
    if (kept + taken < kBlock) return;
    AddBlock(rest_);
  }
  for (; bytes.size() >= kBlock; bytes = bytes.subspan(kBlock)) AddBlock(bytes.data());
  if (!bytes.empty()) std::memcpy(rest_, bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const {
  // computed on a copy, so that more bytes may be added later
  Checksum last = *this;
  std::memset(last.rest_ + count_ % kBlock, 0, kBlock - count_ % kBlock);
  last.AddBlock(last.rest_);
  std::uint64_t sum = count_;
  for (const std::uint64_t value : last.lane_) sum = std::rotl((sum ^ value) * kChecksumPrime, 31);
  return sum;
}

}  // namespace rollouts
