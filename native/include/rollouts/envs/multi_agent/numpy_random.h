// SPDX-License-Identifier: Apache-2.0
// Draws of numpy.random.RandomState(seed), which WarpDrive's starts come from: the Mersenne Twister
// MT19937 (Matsumoto and Nishimura, 1998) and NumPy's legacy ways of using its words.
#pragma once

#include "rollouts/core/platform.h"

namespace rollouts {

// Only for the host, because its state has 2.5 KB.
class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint32_t seed) {
    for (std::uint32_t i = 0; i < kWords; ++i) {
      words_[i] = seed;
      seed = 1812433253u * (seed ^ (seed >> 30)) + i + 1;
    }
  }

  // rand(): uniform in [0, 1).
  double Uniform() {
    const std::uint32_t high = Next() >> 5, low = Next() >> 6;
    return (high * 67108864.0 + low) / 9007199254740992.0;
  }

  // randint(n), 0 < n < 2**32.
  std::uint32_t Below(std::uint32_t n) { return UpTo(n - 1); }

  // permutation(n) as floats, which are exact because n <= 2**24.
  void Permutation(std::int32_t n, float* out) {
    for (std::int32_t i = 0; i < n; ++i) out[i] = static_cast<float>(i);
    for (std::int32_t i = n - 1; i > 0; --i) {
      const std::uint32_t j = UpTo(static_cast<std::uint32_t>(i));
      const float last = out[i];
      out[i] = out[j];
      out[j] = last;
    }
  }

 private:
  static constexpr std::uint32_t kWords = 624, kShift = 397;

  // Uniform in 0 to `most`: masks words with the smallest sufficient mask, until one is not too
  // large.
  std::uint32_t UpTo(std::uint32_t most) {
    std::uint32_t mask = most;
    for (std::uint32_t bits = 1; bits < 32; bits *= 2) mask |= mask >> bits;
    std::uint32_t value = Next() & mask;
    while (value > most) value = Next() & mask;
    return value;
  }

  std::uint32_t Next() {
    if (next_ == kWords) Twist();
    std::uint32_t y = words_[next_++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
  }

  void Twist() {
    for (std::uint32_t i = 0; i < kWords; ++i) {
      const std::uint32_t y =
          (words_[i] & 0x80000000u) | (words_[(i + 1) % kWords] & 0x7fffffffu);
      words_[i] = words_[(i + kShift) % kWords] ^ (y >> 1) ^ ((0u - (y & 1)) & 0x9908b0dfu);
    }
    next_ = 0;
  }

  std::uint32_t words_[kWords];
  std::uint32_t next_ = kWords;
};

}  // namespace rollouts
