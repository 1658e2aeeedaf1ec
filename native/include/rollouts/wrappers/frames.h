// SPDX-License-Identifier: Apache-2.0
// Observations with the elapsed time appended, and stacks of the last ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rollouts/core/spec.h"
#include "rollouts/wrappers/wrappers.h"

namespace rollouts {

// Makes the observations that callers see from those of environments: frames, which are
// observations with or without the time, and stacks of the last few. Threads may call it at once
// for different environments.
class Frames {
 public:
  // Tells if these wrappers change what an observation consists of.
  static bool Needed(const Wrappers& wrappers) {
    return wrappers.time_aware || wrappers.frame_stack > 0;
  }

  // `shown`: the space of the environments' own observations.
  Frames(const SpaceSpec& shown, const Wrappers& wrappers, std::int32_t num_envs);

  // The space of the observations that callers see, without bounds, which Python keeps.
  const SpaceSpec& space() const { return space_; }

  // Writes the row of an episode's first observation: a stack full of it.
  void Begin(std::int32_t env, const std::uint8_t* shown, std::uint8_t* out);
  // Writes the row after a step: the stack advances by one frame.
  void GoOn(std::int32_t env, const std::uint8_t* shown, std::int32_t elapsed, std::uint8_t* out);
  // Writes the last row again.
  void Repeat(std::int32_t env, const std::uint8_t* shown, std::int32_t elapsed,
              std::uint8_t* out) const;

  // The bytes that an environment's rows depend on besides its current observation; empty without a
  // stack.
  std::span<const std::uint8_t> Kept(std::int32_t env) const {
    return {stacks_.data() + env * stack_bytes(), static_cast<std::size_t>(stack_bytes())};
  }
  void SetKept(std::int32_t env, const std::uint8_t* kept) {
    std::copy_n(kept, stack_bytes(), stacks_.data() + env * stack_bytes());
  }
  std::int64_t stack_bytes() const { return depth_ * frame_.bytes(); }

 private:
  void WriteFrame(std::int32_t env, const std::uint8_t* shown, std::int32_t elapsed,
                  std::uint8_t* out) const;

  const SpaceSpec shown_;
  const std::optional<TimeAware> time_;
  const std::int64_t depth_;  // frames of a stack; 0: there is none
  SpaceSpec frame_;
  SpaceSpec space_;
  std::vector<std::uint8_t> stacks_;  // one for each environment, the oldest frame first
};

}  // namespace rollouts
