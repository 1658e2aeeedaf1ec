// SPDX-License-Identifier: Apache-2.0
// The random numbers of ale-py: the generator mt19937 as plain data. Source: M. Matsumoto and
// T. Nishimura, "Mersenne Twister", 1998.
#pragma once

#include "rollouts/atari2600/console.h"

namespace rollouts::atari2600 {

struct Mersenne {
  U32 words[624] = {};
  I32 next = 624;
};

inline ROLLOUTS_HD void Seed(Mersenne& m, U32 seed) {
  m.words[0] = seed;
  for (U32 i = 1; i < 624; ++i) {
    m.words[i] = 1812433253u * (m.words[i - 1] ^ (m.words[i - 1] >> 30)) + i;
  }
  m.next = 624;
}

inline ROLLOUTS_HD U32 Draw(Mersenne& m) {
  if (m.next == 624) {
    for (I32 i = 0; i < 624; ++i) {
      const U32 both = (m.words[i] & 0x80000000u) | (m.words[(i + 1) % 624] & 0x7fffffffu);
      m.words[i] = m.words[(i + 397) % 624] ^ (both >> 1) ^ (both & 1 ? 0x9908b0dfu : 0u);
    }
    m.next = 0;
  }
  U32 y = m.words[m.next++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

// A number in [0, 1).
inline ROLLOUTS_HD double DrawUnit(Mersenne& m) { return Draw(m) / 4294967296.0; }

}  // namespace rollouts::atari2600
