// SPDX-License-Identifier: Apache-2.0
// Score, lives and end of a game, as ALE reads them from the console's memory: ALE's class for the
// game, applied to memory that is not ALE's. A further part of ALE's ABI, see ale_abi.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace rollouts {

// The rules of one environment. Several threads may use different objects at the same time.
class AleRules {
 public:
  // Resolves the symbols in ale_py's module, which AleLibrary::Load must have found. Loading twice
  // is harmless. Throws EngineError for a module that lays out its objects differently from the
  // versions that this was written for.
  static void Load(const std::string& so_path, const std::string& version);

  // Memory that each Step reads; borrowed.
  struct Memory {
    const std::uint8_t* ram;        // 128 bytes
    const std::uint8_t* cartridge;  // 128 bytes, which few cartridges have
  };

  // The rules for a ROM, whose whole content is `rom`. Throws EngineError when Load has not
  // succeeded, or for a ROM that ALE does not know.
  AleRules(const std::string& rom_path, std::span<const std::uint8_t> rom, const Memory& memory);
  // The same rules in the same state, for other memory.
  AleRules(const AleRules& other, const Memory& memory);
  AleRules(const AleRules&) = delete;
  AleRules& operator=(const AleRules&) = delete;
  ~AleRules();

  // Reads the memory; to be called after each frame.
  void Step();
  std::int32_t Reward() const;  // the last frame's
  std::int32_t Lives() const;
  bool GameOver() const;

  // State from frame to frame, such as the score. Load throws EngineError for bytes that ALE cannot
  // read, and then leaves this object undefined.
  std::string Save() const;
  void Restore(std::string saved);

 private:
  void AttachMemory(const Memory& memory);

  static constexpr std::size_t kSystemBytes = 4096;  // ale::stella::System of 0.12 has 876
  alignas(std::max_align_t) std::byte system_[kSystemBytes];  // reads only Memory
  void* settings_;  // ale::RomSettings; owned
};

}  // namespace rollouts
