// SPDX-License-Identifier: Apache-2.0
// Makes a learner's stack of frames of the emulator's screens: palette, maximum of two screens,
// resize, stack.
#pragma once

#include <cstdint>
#include <vector>

#include "engines/ale_abi.h"
#include "rollouts/envs/atari/frame_ring.h"
#include "rollouts/envs/atari/resize.h"
#include "rollouts/support/state.h"

namespace rollouts {

// Successive screens differ in few rows. Both screens are compared, row by row, with those of the
// last step, and only changed rows are computed again.
class AtariScreen {
 public:
  struct Options {
    std::int32_t raw_height = 0;
    std::int32_t raw_width = 0;
    std::int32_t height = 0;
    std::int32_t width = 0;
    std::int32_t stack_num = 0;
    bool grayscale = true;
    bool maxpool = true;
    bool resize_by_area = true;
  };

  AtariScreen(const Options& options, const AlePalette& palette);

  // Forgets everything: the stack is zeros.
  void Clear();

  // Capture the last frame but one, and the last frame, of a step. A step that ends early captures
  // fewer, see Push.
  void CaptureEarlier(const std::uint8_t* raw);
  void CaptureLast(const std::uint8_t* raw);

  // Adds one frame to the stack, made of the screens captured since the last Push. A screen that
  // was not captured stays as it was, as in ale-py's vector environment: the last frame is then the
  // previous *pooled* frame.
  void Push();

  // Writes the stack, oldest frame first: (stack_num, height, width[, 3]) uint8.
  void Observe(std::uint8_t* obs) const;

  // To be called between two steps. Load throws SpecError, before it changes anything, for a state
  // of other options.
  void Save(StateWriter& writer) const;
  void Load(StateReader& reader);

 private:
  // One of the two captured screens, as palette indices.
  struct Capture {
    std::vector<std::uint8_t> raw;      // (raw_height, raw_width)
    std::vector<std::uint8_t> changed;  // (raw_height,) since the last Push
    bool fresh = false;                 // captured since the last Push
    bool valid = false;                 // pooled_ includes raw
  };

  void Take(const std::uint8_t* raw, Capture& capture);
  void Colour(const std::uint8_t* raw_row, std::uint8_t* out) const;
  void PoolRow(std::int32_t y);
  void PoolChangedRows();
  void PoolEarlierIntoPooled();
  void ResizeChangedRows(const std::uint8_t* previous, std::uint8_t* frame);

  const Options options_;
  const AlePalette palette_;
  const std::int32_t row_bytes_;    // a pooled row's
  const std::int32_t frame_bytes_;  // a frame's in the stack
  FrameResize resize_;

  Capture earlier_;
  Capture last_;
  std::vector<std::uint8_t> pooled_;       // (raw_height, row_bytes)
  std::vector<std::uint8_t> pooled_dirty_;  // (raw_height,) 1: not yet in the newest frame
  std::vector<std::uint8_t> row_;          // (2, row_bytes) scratch

  FrameRing stack_;
  bool empty_ = true;  // nothing pushed since Clear
};

}  // namespace rollouts
