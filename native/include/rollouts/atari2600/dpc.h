// SPDX-License-Identifier: Apache-2.0
// The chip in Pitfall II. Source: D. Crane's patent US 4644495. Its three voices make no sound
// here: a game cannot read them.
#pragma once

#include "rollouts/atari2600/console.h"

namespace rollouts::atari2600 {

inline constexpr U32 kDpcGraphics = 8192;  // offset in the ROM, after two banks

// The random number: a shift register of 8 bits, which advances with every access that the chip
// sees. In ale-py it sees reads of the pages with its registers and with the hot spots, including
// instructions there, and all writes.
inline ROLLOUTS_HD bool DpcSeesRead(I32 low) { return low < 0x80 || low >= 0xfc0; }

inline ROLLOUTS_HD void ShiftDpcRandom(Dpc& dpc) {
  const I32 r = dpc.random;
  const I32 in = 1 ^ (r >> 3) ^ (r >> 4) ^ (r >> 5) ^ (r >> 7);
  dpc.random = static_cast<U8>((r << 1) | (in & 1));
}

inline ROLLOUTS_HD U8 ReadDpc(Cartridge& cartridge, I32 reg) {
  Dpc& dpc = cartridge.dpc;
  const I32 i = reg & 7;

  // the window opens and closes where the pointer's low byte reaches its ends
  const U8 low = static_cast<U8>(dpc.counters[i]);
  if (low == dpc.tops[i]) {
    dpc.flags[i] = 0xff;
  } else if (low == dpc.bottoms[i]) {
    dpc.flags[i] = 0;
  }
  // the graphics are stored backwards
  const U8 byte = cartridge.rom[kDpcGraphics + 2047 - (dpc.counters[i] & 0x7ff)];
  if (!dpc.music[i]) dpc.counters[i] = static_cast<U16>((dpc.counters[i] - 1) & 0x7ff);
  switch (reg >> 3) {
    case 0: return i < 4 ? dpc.random : U8{0};
    case 1: return byte;
    case 2: return byte & dpc.flags[i];
    case 7: return dpc.flags[i];
    default: return 0;
  }
}

inline ROLLOUTS_HD void WriteDpc(Cartridge& cartridge, I32 reg, U8 value) {
  Dpc& dpc = cartridge.dpc;
  const I32 i = reg & 7;
  switch ((reg >> 3) & 7) {
    case 0:
      dpc.tops[i] = value;
      dpc.flags[i] = 0;
      break;
    case 1: dpc.bottoms[i] = value; break;
    case 2:
      // the pointer of a voice starts again at its top
      if (dpc.music[i]) value = dpc.tops[i];
      dpc.counters[i] = static_cast<U16>((dpc.counters[i] & 0x700) | value);
      break;
    case 3:
      dpc.counters[i] = static_cast<U16>(((value & 7) << 8) | (dpc.counters[i] & 0xff));
      if (i >= 5) dpc.music[i] = (value >> 4) & 1;
      break;
    case 6: dpc.random = 1; break;
    default: break;
  }
}

}  // namespace rollouts::atari2600
