// SPDX-License-Identifier: Apache-2.0
// A learner's observation of a game: a stack of screens, or of the console's memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "emulator.h"
#include "rollouts/core/spec.h"
#include "rollouts/envs/atari/atari.h"
#include "rollouts/support/state.h"
#include "screen.h"

namespace rollouts {

// The memory after each of the last steps; zeros for steps before the first.
class AtariRamStack {
 public:
  static constexpr std::size_t kBytes = 128;

  explicit AtariRamStack(std::int32_t stack_num) : bytes_(stack_num * kBytes) {}
  void Clear();
  void Push(std::span<const std::uint8_t, kBytes> ram);

  // Oldest first, (stack_num, 128).
  const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  std::vector<std::uint8_t>& bytes() { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
};

class AtariObservation {
 public:
  // Throws SpecError for a size that frames cannot have.
  AtariObservation(const Atari::Config& config, const AtariGame& game);

  static SpaceSpec Space(const Atari::Config& config);

  // Forgets everything: the stack is zeros.
  void Clear();
  // Capture the last frame but one, and the last frame, of a step; see AtariScreen.
  void CaptureEarlier(const AtariEmulator& emulator);
  void CaptureLast(const AtariEmulator& emulator);
  // Adds the frames of a step to the stack.
  void Push(const AtariEmulator& emulator);

  void Observe(std::uint8_t* obs) const;

  // To be called between two steps. Load throws SpecError, before it changes anything, for a state
  // of other options.
  void Save(StateWriter& writer) const;
  void Load(StateReader& reader);

 private:
  std::optional<AtariScreen> screen_;  // either this or the RAM stack
  std::optional<AtariRamStack> ram_;
};

}  // namespace rollouts
