// SPDX-License-Identifier: Apache-2.0
// The newest frames of an episode, for stacked observations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace rollouts {

class FrameRing {
 public:
  FrameRing(std::int32_t num_frames, std::size_t frame_bytes)
      : num_frames_(num_frames), frame_bytes_(frame_bytes), frames_(num_frames * frame_bytes) {}

  // Sets all frames to zeros.
  void Clear() { std::fill(frames_.begin(), frames_.end(), std::uint8_t{0}); }

  // Makes room for a new frame in place of the oldest one, and returns its address, which holds the
  // oldest frame until the new one is written.
  std::uint8_t* Push() {
    newest_ = (newest_ + 1) % num_frames_;
    return frames_.data() + newest_ * frame_bytes_;
  }
  // The frame that was pushed last.
  const std::uint8_t* newest() const { return frames_.data() + newest_ * frame_bytes_; }

  // Writes all frames, oldest first.
  void CopyTo(std::uint8_t* out) const {
    // the slot after the newest one, around the ring
    const std::size_t oldest = static_cast<std::size_t>((newest_ + 1) % num_frames_);
    const std::size_t tail = num_frames_ - oldest;
    std::memcpy(out, frames_.data() + oldest * frame_bytes_, tail * frame_bytes_);
    std::memcpy(out + tail * frame_bytes_, frames_.data(), oldest * frame_bytes_);
  }

  // The slot and bytes of the ring as they lie in memory, for saved states.
  std::int32_t newest_slot() const { return newest_; }
  std::span<const std::uint8_t> bytes() const { return frames_; }
  bool Has(std::int32_t slot) const { return slot >= 0 && slot < num_frames_; }
  // Takes the frames of a ring of the same sizes; Has(newest_slot) must be true.
  void Restore(std::int32_t newest_slot, std::span<const std::uint8_t> bytes) {
    newest_ = newest_slot;
    std::copy(bytes.begin(), bytes.end(), frames_.begin());
  }

 private:
  std::int32_t num_frames_;
  std::size_t frame_bytes_;
  std::vector<std::uint8_t> frames_;  // (num_frames, frame_bytes)
  std::int32_t newest_ = 0;           // slot of the newest frame
};

}  // namespace rollouts
