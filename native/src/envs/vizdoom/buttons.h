// SPDX-License-Identifier: Apache-2.0
// A game's buttons, and the effect of an action on them (vizdoom/gymnasium_wrapper, 1.3).
#pragma once

#include <cstdint>
#include <vector>

#include "engines/doom/doom_abi.h"
#include "rollouts/core/spec.h"

namespace rollouts {

class DoomActions {
 public:
  // Throws SpecError for more combinations than an action can number.
  DoomActions(const DoomFacts& facts, std::int32_t max_pressed);

  SpaceSpec space() const;
  std::int64_t bytes() const { return space().bytes(); }

  // Reads the buttons' values, amounts first, from an action's bytes. False: not an action of this
  // space.
  bool Read(const std::uint8_t* action, std::vector<double>& buttons) const;

 private:
  void AddCombinations(std::uint64_t pressed, std::int32_t next, std::int32_t left);
  void PressLargest(const std::vector<float>& numbers, std::vector<double>& buttons) const;

  const std::int32_t num_deltas_;
  const std::int32_t num_binary_;
  const std::int32_t max_pressed_;
  std::vector<std::uint64_t> combinations_;  // for a Discrete space: bit i is button i
};

}  // namespace rollouts
