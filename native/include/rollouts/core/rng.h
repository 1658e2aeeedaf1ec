// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011), keyed by the pool's seed and counted by (draw, env_id, episode).
#pragma once

#include "rollouts/core/platform.h"

namespace rollouts {

struct PhiloxBlock {
  std::uint32_t word[4];
};

// One block of four random words: a pure function of counter and key.
ROLLOUTS_HD inline PhiloxBlock Philox4x32(PhiloxBlock counter, std::uint32_t key0,
                                          std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter.word[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter.word[2];
    const auto hi0 = static_cast<std::uint32_t>(p0 >> 32);
    const auto hi1 = static_cast<std::uint32_t>(p1 >> 32);
    counter = PhiloxBlock{{hi1 ^ counter.word[1] ^ key0, static_cast<std::uint32_t>(p1),
                           hi0 ^ counter.word[3] ^ key1, static_cast<std::uint32_t>(p0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// Uniform in [0, 1) with 53 random bits. Every step is exact, and signed conversions vectorise.
ROLLOUTS_HD inline double UniformOf(std::uint32_t first, std::uint32_t second) {
  const double high = static_cast<std::int32_t>(first >> 5);
  const double low = static_cast<std::int32_t>(second >> 6);
  return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0);
}

// The random stream of one episode of one environment. The stream is a pure
// function of (seed, env_id, episode); `draws` is the number of 32-bit words
// taken so far and is all that has to be saved to continue it. A stream costs nothing until its
// first draw.
class Rng {
 public:
  ROLLOUTS_HD Rng(std::uint64_t seed, std::uint32_t env_id, std::uint32_t episode,
                  std::uint32_t draws = 0)
      : seed_(seed), env_id_(env_id), episode_(episode), draws_(draws) {}

  ROLLOUTS_HD std::uint32_t draws() const { return draws_; }
  // Number of the episode since the stream was seeded.
  ROLLOUTS_HD std::uint32_t episode() const { return episode_; }

  // Number of the Philox block that holds word `draws`; it is the first word of the block's
  // counter.
  ROLLOUTS_HD static constexpr std::uint32_t BlockIndex(std::uint32_t draws) {
    return draws / 4 + 1;
  }

  ROLLOUTS_HD std::uint32_t NextWord() {
    const std::uint32_t block_index = BlockIndex(draws_);
    if (block_index != cached_block_) {
      block_ = Philox4x32(PhiloxBlock{{block_index, env_id_, episode_, 0}},
                          static_cast<std::uint32_t>(seed_),
                          static_cast<std::uint32_t>(seed_ >> 32));
      cached_block_ = block_index;
    }
    return block_.word[draws_++ % 4];
  }

  // Uniform in [0, 1) with 53 random bits.
  ROLLOUTS_HD double Uniform() {
    const std::uint32_t first = NextWord();
    return UniformOf(first, NextWord());
  }

  // Uniform in [low, high).
  ROLLOUTS_HD double Uniform(double low, double high) { return low + (high - low) * Uniform(); }

  // Uniform in {0, ..., n - 1}; n > 0. Rejection keeps it exactly uniform.
  ROLLOUTS_HD std::uint32_t Below(std::uint32_t n) {
    const std::uint32_t limit = (0u - n) % n;
    std::uint64_t product = std::uint64_t{NextWord()} * n;
    while (static_cast<std::uint32_t>(product) < limit) {
      product = std::uint64_t{NextWord()} * n;
    }
    return static_cast<std::uint32_t>(product >> 32);
  }

 private:
  std::uint64_t seed_;
  std::uint32_t env_id_;
  std::uint32_t episode_;
  std::uint32_t draws_;
  std::uint32_t cached_block_ = 0;
  PhiloxBlock block_{};
};

}  // namespace rollouts
