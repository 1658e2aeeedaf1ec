// SPDX-License-Identifier: Apache-2.0
// Reward, lives and end of a game on our console: by our own rules where there are some of the
// game, else by ALE's.
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

  // As every episode begins, in which `memory` is the start's.
  static NativeRules Start(const AtariGame& game, const char* name,
                           std::span<const std::uint8_t> rom, const Memory& memory);
  // The same game at the same point, with other memory.
  NativeRules(const NativeRules& other, const Memory& memory);

  // Looks at the memory; to be called after each frame.
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
  const atari2600::Rules* ours_ = nullptr;  // or null, and ALE's are used
  atari2600::RulesState state_;             // for our own rules
  std::unique_ptr<AleRules> ales_;
};

}  // namespace rollouts
