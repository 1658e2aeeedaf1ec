// SPDX-License-Identifier: Apache-2.0
// Reward, lives and end of a game on the native console: by the library's own rules where the game
// has them, else by ALE's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engines/ale_rules.h"
#include "game.h"
#include "rollouts/atari2600/rules.h"

namespace rollouts {

class NativeRules {
 public:
  using Memory = AleRules::Memory;

  // Returns the rules as they are at the start of an episode, when the console has this `memory`.
  static NativeRules Start(const AtariGame& game, const char* name,
                           std::span<const std::uint8_t> rom, const Memory& memory);
  // The same rules in the same state, for other memory.
  NativeRules(const NativeRules& other, const Memory& memory);

  // Reads the memory; to be called after each frame.
  void Step();
  std::int32_t Reward() const;  // the last frame's
  std::int32_t Lives() const;
  bool GameOver() const;

  void Save(std::vector<std::uint8_t>& out) const;
  // Throws an Error for bytes that Save did not write.
  void Restore(std::span<const std::uint8_t> saved);

 private:
  explicit NativeRules(const Memory& memory) : memory_(memory) {}

  Memory memory_;
  const atari2600::Rules* ours_ = nullptr;  // null: ALE's are used
  atari2600::RulesState state_;             // for the library's own rules
  std::unique_ptr<AleRules> ales_;
};

}  // namespace rollouts
