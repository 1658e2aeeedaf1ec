// SPDX-License-Identifier: Apache-2.0
// A frame: the part of the emulation that ale-py runs for one action.
#pragma once

#include "rollouts/atari2600/cpu.h"

namespace rollouts::atari2600 {

inline ROLLOUTS_HD void BeginFrame(Console& c) {
  Tia& tia = c.tia;
  c.shown ^= 1;
  const I32 cycles = c.cpu.cycles;
  const I32 clock = cycles * 3;
  const I32 lines = (clock - tia.frame_start) / kLineClocks;
  // lines continue across the end of a frame, where clocks start again
  tia.frame_start = -((clock - tia.frame_start) % kLineClocks);
  tia.first_shown = tia.frame_start + kLineClocks * c.board.first_line;
  tia.last_shown = tia.first_shown + kLineClocks * c.board.height;
  tia.drawn_until = tia.line_start = tia.first_shown;
  tia.row = 0;
  tia.last_hmove -= clock;
  tia.dump_end -= cycles;
  if (tia.vsync_end != kNever) tia.vsync_end -= clock;
  c.riot.set_cycle -= cycles;
  c.riot.expired_read_cycle -= cycles;
  c.cpu.cycles = 0;
  tia.line_is_plain = 0;
  tia.touched = 0;
  tia.touched_register = kReadAccess;
  tia.blanked = kNever;
  SetAlarm(c);

  // colour loss: after a PAL frame with an odd number of lines, colours differ
  if (c.board.pal) {
    c.odd_lines = lines & 1;
    for (U8& colour : tia.colour) colour = (colour & 0xfe) | c.odd_lines;
  }
}

// Tells if ale-py draws four pixels at once, which depends on the objects that are switched on, as
// bits kP0 to kPlayfield. A background alone, and most groups of objects, are drawn pixel by pixel.
inline ROLLOUTS_HD bool IsDrawnByFours(const Tia& tia) {
  constexpr U8 kGroups[] = {1, 2, 3, 4, 8, 12, 16, 18, 20, 24, 32, 33, 34, 48};
  const U8 playfield = tia.pf[0] >> 4 | tia.pf[1] | tia.pf[2];
  const I32 shown = I32{ShowsPlayer(tia, 0)} | ShowsPlayer(tia, 1) << 1 |
                    ShowsMissile(tia, 0) << 2 | ShowsMissile(tia, 1) << 3 | ShowsBall(tia) << 4 |
                    (playfield != 0) << 5;
  // a playfield in the players' colours is drawn by fours only where it is alone
  if ((tia.ctrlpf & 2) && shown > 32) return false;
  for (const U8 group : kGroups) {
    if (group == shown) return true;
  }
  return false;
}

// Draws, as ale-py does, beyond the clock at which a frame ends, if that is within the picture.
inline ROLLOUTS_NOINLINE void DrawBeyond(Console& c, I32 clock) {
  Tia& tia = c.tia;
  if (clock <= tia.first_shown || clock >= tia.last_shown) return;
  const I32 column = (clock - tia.first_shown) % kLineClocks;
  U8* const row = c.screens[c.shown] + (clock - tia.first_shown) / kLineClocks * kWidth;
  const I32 pixel = column > kBlankClocks ? column - kBlankClocks : 0;
  // how much of the line's beginning is black depends on the first access that saw HMOVE's blank
  I32 black = tia.hmove_blank && pixel > 0 ? 8 : 0;
  const I32 blanked = tia.blanked == kNever
                          ? kNever
                          : DrawnBy(tia, tia.blanked_register, tia.blanked);
  if (blanked <= clock && clock - blanked <= column) {
    const I32 first = column - (clock - blanked);
    black = kBlankClocks + 8 - (first < kBlankClocks ? first : kBlankClocks);
  }
  for (I32 i = pixel; i < black; ++i) row[i] = 0;
  if (pixel == 0) return;
  if (pixel % 4 == 0 || (tia.vblank & 2)) return;
  // with some objects, four pixels are drawn at once where no object is
  if (!IsDrawnByFours(tia)) return;
  if (tia.stale) RefreshMasks(tia);
  U64 there = 0;
  for (I32 i = 0; i < kPlayfield; ++i) there |= tia.masks[i].words[pixel >> 6];
  if ((there >> (pixel & 60)) & 15) return;
  for (I32 i = pixel; i % 4; ++i) row[i] = row[pixel - 1];
}

// Greys out an older frame, from the line in which a CPU stopped. Other unfinished frames are
// longer than the screen.
inline ROLLOUTS_HD void GreyOut(Console& c) {
  I32 row = (c.cpu.cycles * 3 - c.tia.first_shown) / kLineClocks;
  if (c.cpu.cycles * 3 < c.tia.first_shown) row = 0;
  U8* const screen = c.screens[c.shown];
  for (I32 i = row * kWidth; i < c.board.height * kWidth; ++i) screen[i] = (screen[i] & 15) >> 1;
}

template <CartridgeKind kKind>
inline ROLLOUTS_HD void RunInstructions(Console& c, I32 end) {
  if constexpr (!kInKernel) {
    if (const Decoded* const decoded = c.cartridge.decoded) {
      decoded->run(c, *decoded, end);
      return;
    }
  }
  Execute<kKind>(c, end);
}

// A call even in kernels: all cartridges in one function would compile for many minutes.
template <CartridgeKind kKind>
inline ROLLOUTS_NOINLINE void EmulateFrame(Console& c) {
  if (!c.partial) BeginFrame(c);
  // a jammed CPU does nothing any more
  if (c.jammed) return;
  c.tia.frame_done = 0;
  RunInstructions<kKind>(c, kMaxInstructions);
  // an unfinished frame is drawn up to the CPU's last read or write of a TIA register
  c.partial = !c.tia.frame_done;
  I32 clock = c.partial ? DrawnBy(c.tia, c.tia.touched_register, c.tia.touched) : c.cpu.cycles * 3;
  if (clock < c.tia.drawn_until) clock = c.tia.drawn_until;
  DrawUntil(c, clock);
  DrawBeyond(c, clock);
  if (c.jammed) GreyOut(c);
}

inline ROLLOUTS_HD void EmulateFrame(Console& c) {
  switch (c.board.kind) {
    case CartridgeKind::kPlain: return EmulateFrame<CartridgeKind::kPlain>(c);
    case CartridgeKind::kF8: return EmulateFrame<CartridgeKind::kF8>(c);
    case CartridgeKind::kF6: return EmulateFrame<CartridgeKind::kF6>(c);
    case CartridgeKind::kE0: return EmulateFrame<CartridgeKind::kE0>(c);
    case CartridgeKind::kFE: return EmulateFrame<CartridgeKind::kFE>(c);
    case CartridgeKind::kF8SC: return EmulateFrame<CartridgeKind::kF8SC>(c);
    case CartridgeKind::kF6SC: return EmulateFrame<CartridgeKind::kF6SC>(c);
    case CartridgeKind::kDpc: return EmulateFrame<CartridgeKind::kDpc>(c);
  }
}

}  // namespace rollouts::atari2600
