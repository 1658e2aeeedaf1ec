// SPDX-License-Identifier: Apache-2.0
// The clock at which an access to the TIA takes effect, and the accesses of a frame: ale-py's
// drawing of a frame that ends within the picture depends on them.
#pragma once

#include "rollouts/atari2600/tia_picture.h"

namespace rollouts::atari2600 {

inline ROLLOUTS_HD I32 Column(const Tia& tia, I32 clock) {
  return (clock - tia.frame_start) % kLineClocks;
}

ROLLOUTS_INLINE I32 WriteDelay(I32 reg, I32 column) {
  static constexpr U8 kPlayfieldDelays[4] = {4, 5, 2, 3};
  switch (reg) {
    case 0x01:
    case 0x0b:
    case 0x0c:
    case 0x1b:
    case 0x1c: return 1;
    case 0x04:
    case 0x05:
    case 0x12:
    case 0x13: return 8;
    case 0x0d:
    case 0x0e:
    case 0x0f: return kPlayfieldDelays[(column / 3) & 3];
    default: return 0;
  }
}

inline constexpr I32 kReadAccess = -1;  // in place of a written register
inline constexpr I32 kWsyncRegister = 0x02;

// The clock up to which an access draws before it takes effect.
inline ROLLOUTS_HD I32 DrawnBy(const Tia& tia, I32 reg, I32 clock) {
  return clock + WriteDelay(reg, Column(tia, clock));
}

// Draws all that a write to a register leaves unchanged, even where the write would change nothing.
inline ROLLOUTS_NOINLINE void DrawForWrite(Console& c, I32 reg, I32 cycles) {
  DrawUntil(c, DrawnBy(c.tia, reg, cycles * 3));
}

// Sets the alarm of a frame that begins.
inline ROLLOUTS_HD void SetAlarm(Console& c) {
  Tia& tia = c.tia;
  tia.too_late = tia.frame_start + (c.board.max_lines + 1) * kLineClocks;
  tia.alarm = tia.hmove_blank ? tia.first_shown + 1 : tia.too_late;
}

// Handles an access after the alarm's clock: the first one that sees HMOVE's blank in the picture
// is stored, and a write ends a frame that is too long.
inline ROLLOUTS_NOINLINE void Notice(Tia& tia, I32 reg, I32 clock) {
  if (tia.alarm < tia.too_late) {
    if (clock <= tia.first_shown && DrawnBy(tia, reg, clock) <= tia.first_shown) {
      tia.alarm = tia.first_shown + 1;
      return;
    }
    tia.blanked = clock;
    tia.blanked_register = reg;
    tia.alarm = tia.too_late;
  }
  if (clock >= tia.too_late && reg != kReadAccess) tia.frame_done = 1;
}

// Begins every access: a write to a register 0..0x3f, or kReadAccess.
ROLLOUTS_INLINE void BeginAccess(Tia& tia, I32 reg, I32 clock) {
  tia.touched = clock;
  tia.touched_register = reg;
  if (clock >= tia.alarm) [[unlikely]] Notice(tia, reg, clock);
}

}  // namespace rollouts::atari2600
