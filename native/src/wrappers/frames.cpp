// SPDX-License-Identifier: Apache-2.0
#include "rollouts/wrappers/frames.h"

#include <algorithm>
#include <cstring>

namespace rollouts {
namespace {

SpaceSpec WithoutBounds(SpaceSpec space) {
  space.elementwise = false;
  space.low[0] = 0;
  space.high[0] = 0;
  return space;
}

// One flat array, of NumPy's common dtype of the observation and the float32 or int32 time.
SpaceSpec FrameSpace(const SpaceSpec& shown, const std::optional<TimeAware>& time) {
  if (!time) return shown;
  SpaceSpec frame = WithoutBounds(shown);
  if (!time->fraction) frame.dtype = DType::kFloat64;
  frame.ndim = 1;
  frame.shape[0] = static_cast<std::int32_t>(shown.size()) + 1;
  return frame;
}

SpaceSpec StackSpace(const SpaceSpec& frame, std::int64_t depth) {
  if (depth == 0) return frame;
  SpaceSpec stack = WithoutBounds(frame);
  std::copy(frame.shape, frame.shape + frame.ndim, stack.shape + 1);
  stack.shape[0] = static_cast<std::int32_t>(depth);
  ++stack.ndim;
  return stack;
}

template <typename From, typename To>
void Convert(const std::uint8_t* from, std::int64_t count, double last, std::uint8_t* to) {
  const auto* values = reinterpret_cast<const From*>(from);
  auto* out = reinterpret_cast<To*>(to);
  std::copy(values, values + count, out);
  out[count] = static_cast<To>(last);
}

}  // namespace

Frames::Frames(const SpaceSpec& shown, const Wrappers& wrappers, std::int32_t num_envs)
    : shown_(shown),
      time_(wrappers.time_aware),
      depth_(wrappers.frame_stack),
      frame_(FrameSpace(shown, time_)),
      space_(StackSpace(frame_, depth_)),
      stacks_(static_cast<std::size_t>(num_envs * depth_ * frame_.bytes())) {}

void Frames::Begin(std::int32_t env, const std::uint8_t* shown, std::uint8_t* out) {
  WriteFrame(env, shown, /*elapsed=*/0, out);
  if (depth_ == 0) return;
  const std::int64_t bytes = frame_.bytes();
  for (std::int64_t i = 1; i < depth_; ++i) std::memcpy(out + i * bytes, out, bytes);
  SetKept(env, out);
}

void Frames::GoOn(std::int32_t env, const std::uint8_t* shown, std::int32_t elapsed,
                  std::uint8_t* out) {
  if (depth_ == 0) return WriteFrame(env, shown, elapsed, out);
  std::uint8_t* const stack = stacks_.data() + env * stack_bytes();
  const std::int64_t bytes = frame_.bytes(), older = (depth_ - 1) * bytes;
  std::memmove(stack, stack + bytes, older);
  WriteFrame(env, shown, elapsed, stack + older);
  std::memcpy(out, stack, stack_bytes());
}

void Frames::Repeat(std::int32_t env, const std::uint8_t* shown, std::int32_t elapsed,
                    std::uint8_t* out) const {
  if (depth_ == 0) return WriteFrame(env, shown, elapsed, out);
  std::memcpy(out, Kept(env).data(), stack_bytes());
}

void Frames::WriteFrame(std::int32_t env, const std::uint8_t* shown, std::int32_t elapsed,
                        std::uint8_t* out) const {
  if (!time_) {
    std::memcpy(out, shown, shown_.bytes());
    return;
  }
  // a float32 fraction even where the observation is float64, as in Gymnasium
  const double time =
      time_->fraction
          ? static_cast<float>(elapsed / static_cast<double>(
                                             time_->limits[static_cast<std::size_t>(env)]))
          : elapsed;
  const std::int64_t size = shown_.size();
  if (shown_.dtype == DType::kFloat64) {
    Convert<double, double>(shown, size, time, out);
  } else if (time_->fraction) {
    Convert<float, float>(shown, size, time, out);
  } else {
    Convert<float, double>(shown, size, time, out);
  }
}

}  // namespace rollouts
