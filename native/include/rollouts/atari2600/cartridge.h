// SPDX-License-Identifier: Apache-2.0
// Cartridges: which KiB of the ROM appear at 0x1000-0x1fff, and the addresses that switch them.
// Source: "Cart Information" by Kevin Horton, and D. Crane's patent US 4644495 (DPC).
#pragma once

#include "rollouts/atari2600/console.h"
#include "rollouts/atari2600/dpc.h"

namespace rollouts::atari2600 {

// Makes a bank of 4 KiB appear at 0x1000-0x1fff.
inline ROLLOUTS_HD void SelectBank(Cartridge& cartridge, I32 bank) {
  cartridge.bank = static_cast<U8>(bank);
  for (U32 i = 0; i < 4; ++i) {
    cartridge.slices[i] = static_cast<U32>(bank) * 4096 + i * 1024;
  }
}

inline ROLLOUTS_HD void SelectSlice(Cartridge& cartridge, I32 slot, I32 slice) {
  cartridge.slices[slot] = static_cast<U32>(slice) * 1024;
}

// Switches banks as an access to `address` does.
template <CartridgeKind kKind>
inline ROLLOUTS_HD void TouchCartridge(Cartridge& cartridge, I32 address) {
  const I32 low = address & 0xfff;
  if constexpr (kKind == CartridgeKind::kF8 || kKind == CartridgeKind::kF8SC ||
                kKind == CartridgeKind::kDpc) {
    if (low == 0xff8 || low == 0xff9) SelectBank(cartridge, low - 0xff8);
  } else if constexpr (kKind == CartridgeKind::kF6 || kKind == CartridgeKind::kF6SC) {
    if (low >= 0xff6 && low <= 0xff9) SelectBank(cartridge, low - 0xff6);
  } else if constexpr (kKind == CartridgeKind::kE0) {
    if (low >= 0xfe0 && low <= 0xff7) SelectSlice(cartridge, (low - 0xfe0) >> 3, low & 7);
  }
}

template <CartridgeKind kKind>
inline ROLLOUTS_HD U8 ReadCartridge(Cartridge& cartridge, I32 address) {
  if constexpr (kKind == CartridgeKind::kFE) {
    // bit 13 of the address selects the half of the ROM, though a 6507 has no line for it
    return cartridge.rom[(address & 0xfff) + (address & 0x2000 ? 0 : 4096)];
  }
  if constexpr (kKind == CartridgeKind::kDpc) {
    if (DpcSeesRead(address & 0xfff)) ShiftDpcRandom(cartridge.dpc);
    if ((address & 0xfff) < 0x40) return ReadDpc(cartridge, address & 0x3f);
  }
  if constexpr (kKind == CartridgeKind::kF8SC || kKind == CartridgeKind::kF6SC) {
    if ((address & 0xfff) < 0x80) return 0;
    if ((address & 0xf80) == 0x80) return cartridge.ram[address & 0x7f];
  }
  TouchCartridge<kKind>(cartridge, address);
  return cartridge.rom[cartridge.slices[(address >> 10) & 3] + (address & 0x3ff)];
}

template <CartridgeKind kKind>
inline ROLLOUTS_HD void WriteCartridge(Cartridge& cartridge, I32 address, U8 value) {
  if constexpr (kKind == CartridgeKind::kDpc) {
    ShiftDpcRandom(cartridge.dpc);
    if ((address & 0xfff) >= 0x40 && (address & 0xfff) < 0x80) {
      WriteDpc(cartridge, address & 0x3f, value);
      return;
    }
  }
  if constexpr (kKind == CartridgeKind::kF8SC || kKind == CartridgeKind::kF6SC) {
    if ((address & 0xfff) < 0x80) {
      cartridge.ram[address & 0x7f] = value;
      return;
    }
  }
  TouchCartridge<kKind>(cartridge, address);
}

}  // namespace rollouts::atari2600
