// SPDX-License-Identifier: Apache-2.0
// The RIOT's ports and timer. Sources: the MOS 6532 data sheet for the registers; ale-py for the
// numbers after the timer has expired.
#pragma once

#include "rollouts/atari2600/console.h"

namespace rollouts::atari2600 {

// Intervals of the timer that have passed. Code among the registers is read a cycle too early:
// `passed` is then negative, and is shifted as an unsigned number.
inline ROLLOUTS_HD I32 PassedIntervals(const Riot& riot, I32 passed) {
  return static_cast<I32>(static_cast<U32>(passed) >> riot.shift);
}

// Reads INTIM; `cycles` is when the reading instruction ends.
inline ROLLOUTS_HD U8 ReadTimer(Riot& riot, I32 cycles) {
  const I32 passed = cycles - 1 - riot.set_cycle;
  const I32 value = riot.timer - PassedIntervals(riot, passed) - 1;
  if (value >= 0) return static_cast<U8>(value);

  // expired: the timer falls with every cycle until it is read, then by the interval again
  const I32 length = riot.timer << riot.shift;
  const I32 fallen = length - passed - 1;
  if (fallen <= -2 && !riot.read_expired) {
    riot.read_expired = 1;
    riot.expired_read_cycle = cycles;
  }
  if (!riot.read_expired) return static_cast<U8>(fallen);
  const I32 late = riot.expired_read_cycle - (riot.set_cycle + length);
  return static_cast<U8>(riot.timer - PassedIntervals(riot, passed) - late);
}

inline ROLLOUTS_HD U8 ReadRiot(Riot& riot, const Inputs& inputs, I32 address, I32 cycles) {
  switch (address & 7) {
    case 0: return inputs.port_a;
    case 1: return riot.direction_a;
    case 2: return inputs.switches;
    case 3: return 0;
    case 4:
    case 6: return ReadTimer(riot, cycles);
    default: {
      const I32 passed = cycles - 1 - riot.set_cycle;
      const I32 value = riot.timer - PassedIntervals(riot, passed) - 1;
      return value >= 0 || riot.read_expired ? 0x00 : 0x80;
    }
  }
}

inline ROLLOUTS_HD void WriteRiot(Riot& riot, I32 address, U8 value, I32 cycles) {
  static constexpr U8 kShifts[4] = {0, 3, 6, 10};
  // the timer, at intervals of 1, 8, 64 and 1024 cycles
  if ((address & 0x14) == 0x14) {
    riot.timer = value;
    riot.shift = kShifts[address & 3];
    riot.set_cycle = cycles;
    riot.read_expired = 0;
    return;
  }
  // the port of the switches is read-only
  if ((address & 7) == 1) riot.direction_a = value;
}

}  // namespace rollouts::atari2600
