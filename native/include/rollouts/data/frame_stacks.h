// SPDX-License-Identifier: Apache-2.0
// Stacked observations as single frames and an index, with each frame of a rollout stored once.
#pragma once

#include <cstdint>
#include <vector>

namespace rollouts {

// A rollout's observations, and the one after its last step; borrowed, C-contiguous.
struct FrameStacks {
  std::int64_t steps;           // T
  std::int64_t envs;            // B
  std::int64_t depth;           // S, frames in a stack, the newest last
  std::int64_t frame_bytes;
  const std::uint8_t* obs;      // (T, B, S, frame_bytes)
  const std::uint8_t* last_obs; // (B, S, frame_bytes)

  // The stack (S, frame_bytes) of an environment at row t; row T is last_obs.
  const std::uint8_t* At(std::int64_t t, std::int64_t env) const {
    const std::uint8_t* const row =
        t == steps ? last_obs : obs + t * envs * depth * frame_bytes;
    return row + env * depth * frame_bytes;
  }
};

// Returns where each distinct frame is first seen. `index` (T + 1, B, S) gets, for every frame of
// every stack, the position of an equal frame in the result. Bytes are compared and nothing is
// assumed about episodes: a stack that does not continue the one before costs more frames, but is
// never wrong. The caller ensures that the frames can be counted in 31 bits.
std::vector<const std::uint8_t*> FindFrames(const FrameStacks& stacks, std::int32_t* index);

}  // namespace rollouts
