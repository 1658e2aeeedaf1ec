// SPDX-License-Identifier: Apache-2.0
// The TIA's picture, line by line. Nothing is drawn until a register changes the picture or the
// frame ends; then DrawUntil draws all that is due.
#pragma once

#include "rollouts/atari2600/tia_paint.h"

namespace rollouts::atari2600 {

// Copies words of 8 bytes: a general memcpy takes longer.
inline ROLLOUTS_HD void CopyLine(U8* row, const U8* from) {
  for (I32 i = 0; i < kWidth; i += 8) CopyBytes(row + i, from + i, 8);
}

// Draws a whole line that is not blanked to black.
inline ROLLOUTS_HD void DrawLine(Tia& tia, U8* row) {
  // the line equals the one above, so it is copied, and its collisions are already latched
  if (tia.line_is_plain && !tia.hmove_blank) {
    CopyLine(row, row - kWidth);
    return;
  }
  if (tia.stale) RefreshMasks(tia);
  Show(tia, row, 0, kWidth);
  tia.line_is_plain = !tia.hmove_blank;
  if (tia.hmove_blank) FillBytes(row, 0, 8);
  tia.hmove_blank = 0;
}

// Draws pixels first .. last - 1 of a line.
inline ROLLOUTS_HD void DrawSegment(Tia& tia, U8* row, I32 first, I32 last) {
  const I32 size = last - first;
  if (tia.vblank & 2) {
    FillPixels(row + first, 0, size);
    if (first < 8 && last >= 8) tia.hmove_blank = 0;
    return;
  }
  if (size == kWidth) return DrawLine(tia, row);
  if (tia.stale) RefreshMasks(tia);
  Show(tia, row, first, last);
  tia.line_is_plain = 0;
  if (first >= 8) return;
  if (tia.hmove_blank) FillBytes(row + first, 0, (last < 8 ? last : 8) - first);
  if (last >= 8) tia.hmove_blank = 0;
}

// Cosmic Ark's stars: missile 0 moves by 68 pixels in four lines, and has other shapes in two of
// them.
inline ROLLOUTS_HD void MoveStar(Tia& tia) {
  static constexpr U8 kMoves[4] = {18, 33, 0, 17};
  tia.star_line = (tia.star_line + 1) & 3;
  tia.star_shape = tia.star_line < 3 ? tia.star_line : 0;
  tia.pos[kM0] = static_cast<U8>((tia.pos[kM0] - kMoves[tia.star_line] + kWidth) % kWidth);
  tia.stale |= 1 << kM0;
  tia.line_is_plain = 0;
}

inline ROLLOUTS_HD void EndLine(Tia& tia) {
  if (tia.stars) MoveStar(tia);
  // states that the end of one line clears
  for (I32 i = 0; i < 2; ++i) {
    if (!tia.skip_first[i]) continue;
    tia.skip_first[i] = 0;
    tia.stale |= static_cast<U8>(1 << (kP0 + i));
    tia.line_is_plain = 0;
  }
  if (tia.reflect != (tia.ctrlpf & 1)) {
    tia.reflect = tia.ctrlpf & 1;
    tia.stale |= 1 << kPlayfield;
    tia.line_is_plain = 0;
  }
}

// Draws until `clock`, which is later than drawn_until and not after the last clock shown.
inline ROLLOUTS_NOINLINE void DrawDue(Console& c, I32 clock) {
  Tia& tia = c.tia;
  I32 column = tia.drawn_until - tia.line_start;
  I32 left = clock - tia.drawn_until;
  tia.drawn_until = clock;
  U8* const screen = c.screens[c.shown];
  // where the last call drew a line to its end, EndLine is still due
  if (column == 0 && tia.row > 0) EndLine(tia);
  while (left > 0) {
    const I32 end = column + left < kLineClocks ? column + left : kLineClocks;
    const I32 first = column > kBlankClocks ? column - kBlankClocks : 0;
    if (end > kBlankClocks) {
      if (tia.row == 0) tia.line_is_plain = 0;
      DrawSegment(tia, screen + tia.row, first, end - kBlankClocks);
    }
    left -= end - column;
    column = end;
    if (column == kLineClocks) {
      if (left > 0) EndLine(tia);
      column = 0;
      tia.line_start += kLineClocks;
      tia.row += kWidth;
    }
  }
  // the clocks before the first pixel show nothing, so they count as drawn
  if (column > 0 && column < kBlankClocks) tia.drawn_until += kBlankClocks - column;
}

// Draws what is due at `clock`.
ROLLOUTS_INLINE void DrawUntil(Console& c, I32 clock) {
  const Tia& tia = c.tia;
  if (clock > tia.last_shown) clock = tia.last_shown;
  if (clock > tia.drawn_until) DrawDue(c, clock);
}

}  // namespace rollouts::atari2600
