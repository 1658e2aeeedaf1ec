// SPDX-License-Identifier: Apache-2.0
#include "rollouts/data/frame_stacks.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace rollouts {
namespace {

bool Equal(const std::uint8_t* a, const std::uint8_t* b, std::int64_t bytes) {
  return std::memcmp(a, b, static_cast<std::size_t>(bytes)) == 0;
}

// One stack and its entries of the index.
struct Stack {
  const std::uint8_t* frames;
  std::int32_t* index;
};

class Finder {
 public:
  explicit Finder(const FrameStacks& stacks)
      : depth_(stacks.depth), frame_bytes_(stacks.frame_bytes) {
    // room for one new frame a step and the first stacks; the beginnings of episodes need more
    found_.reserve(static_cast<std::size_t>((stacks.steps + stacks.depth) * stacks.envs));
  }

  // Adds a stack without knowing an earlier one.
  void AddFirst(const Stack& now) {
    for (std::int64_t s = 0; s < depth_; ++s) AddFrame(now, s, nullptr);
  }

  // Adds a stack that usually is `before`, moved on by one frame.
  void AddNext(const Stack& now, const Stack& before) {
    const std::int64_t kept = depth_ - 1;
    // one comparison for all frames that both stacks have
    if (Equal(now.frames, before.frames + frame_bytes_, kept * frame_bytes_)) {
      std::copy_n(before.index + 1, kept, now.index);
      AddFrame(now, kept, &before);
      return;
    }
    for (std::int64_t s = 0; s < depth_; ++s) AddFrame(now, s, &before);
  }

  std::vector<const std::uint8_t*> TakeFound() { return std::move(found_); }

 private:
  // Searches three places for an equal frame: in the stack before, one place further; there at the
  // same place, because a game may stand still; and in its own stack, one place earlier, because a
  // stack may begin with equal frames.
  void AddFrame(const Stack& now, std::int64_t s, const Stack* before) {
    if (before != nullptr) {
      if (s + 1 < depth_ && Copies(now, s, *before, s + 1)) return;
      if (Copies(now, s, *before, s)) return;
    }
    if (s > 0 && Copies(now, s, now, s - 1)) return;
    now.index[s] = static_cast<std::int32_t>(found_.size());
    found_.push_back(now.frames + s * frame_bytes_);
  }

  bool Copies(const Stack& now, std::int64_t s, const Stack& other, std::int64_t other_s) {
    const bool equal =
        Equal(now.frames + s * frame_bytes_, other.frames + other_s * frame_bytes_, frame_bytes_);
    if (equal) now.index[s] = other.index[other_s];
    return equal;
  }

  const std::int64_t depth_;
  const std::int64_t frame_bytes_;
  std::vector<const std::uint8_t*> found_;
};

}  // namespace

std::vector<const std::uint8_t*> FindFrames(const FrameStacks& stacks, std::int32_t* index) {
  Finder finder(stacks);
  const std::int64_t row = stacks.envs * stacks.depth;
  for (std::int64_t t = 0; t <= stacks.steps; ++t) {
    for (std::int64_t env = 0; env < stacks.envs; ++env) {
      std::int32_t* const at = index + t * row + env * stacks.depth;
      // environment by environment, because a stack is only compared with its environment's past
      const Stack now{stacks.At(t, env), at};
      if (t == 0) {
        finder.AddFirst(now);
      } else {
        finder.AddNext(now, {stacks.At(t - 1, env), at - row});
      }
    }
  }
  return finder.TakeFound();
}

}  // namespace rollouts
