// SPDX-License-Identifier: Apache-2.0
// A frame: what ale-py emulates for one action.
#pragma once

#include "rollouts/atari2600/cpu.h"

namespace rollouts::atari2600 {

inline ROLLOUTS_HD void BeginFrame(Console& c) {
  Tia& tia = c.tia;
  c.shown ^= 1;
  const I32 cycles = c.cpu.cycles;
  const I32 clock = cycles * 3;
  const I32 lines = (clock - tia.frame_start) / kLineClocks;
  // lines go on through the frame's end, which is where clocks start again
  tia.frame_start = -((clock - tia.frame_start) % kLineClocks);
  tia.first_shown = tia.frame_start + kLineClocks * c.board.first_line;
  tia.last_shown = tia.first_shown + kLineClocks * c.board.height;
  tia.drawn_until = tia.first_shown;
  tia.last_hmove -= clock;
  tia.dump_end -= cycles;
  if (tia.vsync_end != kNever) tia.vsync_end -= clock;
  c.riot.set_cycle -= cycles;
  c.riot.expired_read_cycle -= cycles;
  c.cpu.cycles = 0;
  tia.line_is_plain = 0;

  // colour loss: where a PAL frame had an odd number of lines, colours are others
  if (c.board.pal) {
    c.odd_lines = lines & 1;
    for (U8& colour : tia.colour) colour = (colour & 0xfe) | c.odd_lines;
  }
}

template <CartridgeKind kKind>
inline ROLLOUTS_HD void RunInstructions(Console& c, I32 end) {
  if constexpr (!kInKernel) {
    if (const Decoded* const decoded = c.cartridge.decoded) {
      decoded->run(c, decoded->records, end);
      return;
    }
  }
  Execute<kKind>(c, end);
}

// A call in kernels too: all cartridges in one function take a compiler many minutes.
template <CartridgeKind kKind>
inline ROLLOUTS_NOINLINE void EmulateFrame(Console& c) {
  if (!c.partial) BeginFrame(c);
  c.tia.frame_done = 0;
  RunInstructions<kKind>(c, kMaxInstructions);
  // an unfinished frame shows what its last write to the TIA drew
  c.partial = !c.tia.frame_done;
  if (!c.partial) DrawUntil(c, c.cpu.cycles * 3);
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
