// SPDX-License-Identifier: Apache-2.0
// A decoded ROM that owns its memory: of all consoles with the game.
#pragma once

#include <cstddef>
#include <vector>

#include "rollouts/atari2600/decoded_cpu.h"

namespace rollouts::atari2600 {

class DecodedRom {
 public:
  // `rom` has rom_size bytes and outlives this, which outlives the consoles that run it.
  DecodedRom(CartridgeKind kind, const U8* rom, I32 rom_size) {
    if (!IsDecoded(kind)) return;
    records_.resize(static_cast<std::size_t>(PagesOf(kind, rom_size) * PageRecords(kind)));
    DecodeRom(kind, rom, rom_size, records_.data());
    decoded_ = {records_.data(), ExecuteOf(kind)};
  }
  DecodedRom(const DecodedRom&) = delete;
  DecodedRom& operator=(const DecodedRom&) = delete;

  // For Attach; null for a cartridge of a kind that is not decoded.
  const Decoded* get() const { return records_.empty() ? nullptr : &decoded_; }

 private:
  static Decoded::Run* ExecuteOf(CartridgeKind kind) {
    switch (kind) {
      case CartridgeKind::kF8: return ExecuteDecoded<CartridgeKind::kF8>;
      case CartridgeKind::kF6: return ExecuteDecoded<CartridgeKind::kF6>;
      case CartridgeKind::kE0: return ExecuteDecoded<CartridgeKind::kE0>;
      case CartridgeKind::kF8SC: return ExecuteDecoded<CartridgeKind::kF8SC>;
      case CartridgeKind::kF6SC: return ExecuteDecoded<CartridgeKind::kF6SC>;
      default: return ExecuteDecoded<CartridgeKind::kPlain>;
    }
  }

  std::vector<Instruction> records_;
  Decoded decoded_;
};

}  // namespace rollouts::atari2600
