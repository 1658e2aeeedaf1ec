// SPDX-License-Identifier: Apache-2.0
// Finds the chip at an address. A 6507 has 13 address lines: line 12 selects the cartridge where it
// is high; else line 7 selects RAM and RIOT or the TIA.
#pragma once

#include "rollouts/atari2600/cartridge.h"
#include "rollouts/atari2600/riot.h"
#include "rollouts/atari2600/tia.h"

namespace rollouts::atari2600 {

// Reads from all chips but the cartridge. `bus` is the byte that was last on the data bus.
inline ROLLOUTS_HD U8 ReadChips(Console& c, I32 address, U8 bus, I32 cycles) {
  if (!(address & 0x80)) return ReadTia(c, address, bus, cycles);
  if (address & 0x200) return ReadRiot(c.riot, c.inputs, address, cycles);
  return c.riot.ram[address & 0x7f];
}

template <CartridgeKind kKind>
inline ROLLOUTS_HD U8 Read(Console& c, I32 address, U8 bus, I32 cycles) {
  if (address & 0x1000) return ReadCartridge<kKind>(c.cartridge, address);
  return ReadChips(c, address, bus, cycles);
}

// The same for the zero page and the page of the stack: RAM or the TIA.
inline ROLLOUTS_HD U8 ReadLow(Console& c, I32 address, U8 bus, I32 cycles) {
  return address & 0x80 ? c.riot.ram[address & 0x7f] : ReadTia(c, address, bus, cycles);
}

// Writes there. WSYNC increases `cycles`. Returns whether the frame is done.
inline ROLLOUTS_HD bool WriteLow(Console& c, I32 address, U8 value, I32& cycles) {
  if (address & 0x80) {
    c.riot.ram[address & 0x7f] = value;
    return false;
  }
  WriteTia(c, address, value, cycles);
  return c.tia.frame_done;
}

template <CartridgeKind kKind>
inline ROLLOUTS_HD bool Write(Console& c, I32 address, U8 value, I32& cycles) {
  if (address & 0x1000) {
    WriteCartridge<kKind>(c.cartridge, address, value);
  } else if ((address & 0x280) == 0x280) {
    WriteRiot(c.riot, address, value, cycles);
  } else {
    return WriteLow(c, address, value, cycles);
  }
  return false;
}

}  // namespace rollouts::atari2600
