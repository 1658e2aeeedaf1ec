// SPDX-License-Identifier: Apache-2.0
// Checks whether a console from a saved state of unknown origin can be run: none of its numbers may
// make a look-up or a drawing leave its bounds.
#pragma once

#include "rollouts/atari2600/game_console.h"

namespace rollouts::atari2600 {

// True if the cartridge shows only parts of the ROM that its switches can choose.
inline bool HasSlices(const Cartridge& cartridge, const GameConsole& start, U32 rom_size) {
  const U32* const slices = cartridge.slices;
  const U32* const first = start.console.cartridge.slices;
  const CartridgeKind kind = start.console.board.kind;
  if (kind == CartridgeKind::kE0) {
    for (I32 i = 0; i < 3; ++i) {
      if (slices[i] % 1024 || slices[i] >= 8 * 1024) return false;
    }
    // the fourth slice always shows the last KiB
    return slices[3] == first[3];
  }
  if (kind == CartridgeKind::kPlain || kind == CartridgeKind::kFE) {
    for (I32 i = 0; i < 4; ++i) {
      if (slices[i] != first[i]) return false;
    }
    return true;
  }
  // banks of 4 KiB; after those of a DPC come its graphics
  const U32 banks = kind == CartridgeKind::kDpc ? 2 : rom_size / 4096;
  for (U32 i = 0; i < 4; ++i) {
    if (slices[i] != slices[0] + i * 1024) return false;
  }
  return slices[0] % 4096 == 0 && slices[0] / 4096 < banks;
}

// True where the place to draw next is within the screen.
inline bool IsPicture(const Tia& tia, const Board& board) {
  const bool begun = tia.frame_start > -kLineClocks && tia.frame_start <= 0;
  if (!begun || tia.first_shown != tia.frame_start + kLineClocks * board.first_line ||
      tia.last_shown != tia.first_shown + kLineClocks * board.height) {
    return false;
  }
  const I32 lines = tia.row / kWidth;
  if (tia.row < 0 || tia.row % kWidth || lines > board.height ||
      tia.line_start != tia.first_shown + lines * kLineClocks) {
    return false;
  }
  return tia.drawn_until >= tia.line_start && tia.drawn_until < tia.line_start + kLineClocks &&
         tia.drawn_until <= tia.last_shown;
}

inline bool IsTia(const Tia& tia) {
  for (const U8 at : tia.pos) {
    if (at >= kWidth) return false;
  }
  for (const Mask& mask : tia.masks) {
    // only half of a line's last word is used
    if (mask.words[2] >> 32) return false;
  }
  return tia.star_line < 4 && tia.star_shape < 3 && tia.skip_first[0] < 2 && tia.skip_first[1] < 2;
}

inline bool IsSameBoard(const Board& a, const Board& b) {
  return a.kind == b.kind && a.pal == b.pal && a.hmove_blanks == b.hmove_blanks &&
         a.first_line == b.first_line && a.height == b.height && a.max_lines == b.max_lines;
}

// `start`: a console of the same game after a reset; `rom_size`: bytes.
inline bool IsConsole(const GameConsole& g, const GameConsole& start, U32 rom_size) {
  constexpr I32 kMostCycles = 1 << 29;  // three clocks for each still fit the type
  const Console& c = g.console;
  const Cpu& cpu = c.cpu;
  return IsSameBoard(c.board, start.console.board) &&
         HasSlices(c.cartridge, start, rom_size) && IsPicture(c.tia, c.board) && IsTia(c.tia) &&
         c.shown < 2 && c.partial < 2 && c.jammed < 2 && c.odd_lines < 2 &&
         (cpu.carry | cpu.overflow | cpu.decimal | cpu.interrupt) < 2 && cpu.cycles >= 0 &&
         cpu.cycles < kMostCycles && c.riot.shift <= 10 && g.system_random.next >= 0 &&
         g.system_random.next <= 624 && g.sticky_random.next >= 0 &&
         g.sticky_random.next <= 624 && g.last_action >= 0 && g.last_action < 18;
}

}  // namespace rollouts::atari2600
