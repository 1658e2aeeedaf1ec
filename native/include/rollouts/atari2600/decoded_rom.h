// SPDX-License-Identifier: Apache-2.0
// A decoded ROM that owns its memory, for all consoles with the game.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "rollouts/atari2600/decoded_cpu.h"

#if defined(__x86_64__) && defined(__linux__) && !defined(__ILP32__)
#define ROLLOUTS_ATARI_JIT
#include "rollouts/atari2600/jit/compiled_rom.h"
#endif

namespace rollouts::atari2600 {

class DecodedRom {
 public:
  // `rom` has rom_size bytes and must outlive this object, which must outlive the consoles that run
  // it. `compiles`: makes machine code of it, on x86-64 Linux, where the system permits that.
  DecodedRom(CartridgeKind kind, const U8* rom, I32 rom_size, [[maybe_unused]] bool compiles) {
    if (!IsDecoded(kind)) return;
    records_.resize(static_cast<std::size_t>(PagesOf(kind, rom_size) * PageSize(kind)));
    DecodeRom(kind, rom, rom_size, records_.data());
    decoded_.records = records_.data();
#if defined(ROLLOUTS_ATARI_JIT)
    if (compiles) {
      auto compiled = std::make_unique<jit::CompiledRom>(kind, rom, rom_size, records_.data());
      if (compiled->is_runnable()) compiled_ = std::move(compiled);
    }
    decoded_.compiled = compiled_.get();
#endif
    decoded_.run = RunOf(kind);
  }
  DecodedRom(const DecodedRom&) = delete;
  DecodedRom& operator=(const DecodedRom&) = delete;

  // The argument for Attach; null for a cartridge of a kind that is not decoded.
  const Decoded* get() const { return records_.empty() ? nullptr : &decoded_; }
  bool is_compiled() const { return decoded_.compiled != nullptr; }

 private:
  template <CartridgeKind kKind>
  Decoded::Run* RunOf() const {
#if defined(ROLLOUTS_ATARI_JIT)
    if (is_compiled()) return jit::ExecuteCompiled<kKind>;
#endif
    return ExecuteDecoded<kKind>;
  }
  Decoded::Run* RunOf(CartridgeKind kind) const {
    switch (kind) {
      case CartridgeKind::kF8: return RunOf<CartridgeKind::kF8>();
      case CartridgeKind::kF6: return RunOf<CartridgeKind::kF6>();
      case CartridgeKind::kE0: return RunOf<CartridgeKind::kE0>();
      case CartridgeKind::kF8SC: return RunOf<CartridgeKind::kF8SC>();
      case CartridgeKind::kF6SC: return RunOf<CartridgeKind::kF6SC>();
      default: return RunOf<CartridgeKind::kPlain>();
    }
  }

  std::vector<Instruction> records_;
#if defined(ROLLOUTS_ATARI_JIT)
  std::unique_ptr<const jit::CompiledRom> compiled_;
#endif
  Decoded decoded_;
};

}  // namespace rollouts::atari2600
