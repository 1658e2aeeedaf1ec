// SPDX-License-Identifier: Apache-2.0
// An Atari 2600 as plain data: the state of its chips between two accesses. Behaviour is in the
// other headers of this folder: riot.h, tia_picture.h, tia.h, cartridge.h, cpu.h, decoded_cpu.h,
// frame.h.
//
// Written from public documents of the 6507, the TIA and the RIOT, and from comparing with ale-py
// as a black box: where ale-py 0.12 differs from the hardware, this equals ale-py.
#pragma once

#include "rollouts/core/platform.h"

namespace rollouts::atari2600 {

using U8 = std::uint8_t;
using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using I16 = std::int16_t;
using I32 = std::int32_t;

inline constexpr I32 kWidth = 160;          // visible pixels of a line
inline constexpr I32 kMaxHeight = 250;      // lines of a screen; 210 for most games
inline constexpr I32 kLineClocks = 228;     // colour clocks of a line
inline constexpr I32 kBlankClocks = 68;     // those before the first pixel
inline constexpr I32 kLineCycles = 76;      // CPU cycles of a line: 3 clocks each
inline constexpr I32 kMaxInstructions = 25000;  // a frame with more is left unfinished
inline constexpr I32 kNever = 0x7fffffff;
inline constexpr I32 kEmptyPaddle = -1;  // the paddle's INPT is never high
inline constexpr I32 kFullPaddle = -2;   // the paddle's INPT is always high

struct Cpu {
  U16 pc = 0;
  U8 a = 0;
  U8 x = 0;
  U8 y = 0;
  U8 sp = 0;
  U8 n = 0;      // bit 7 is the flag N
  U8 z = 1;      // the flag Z is set where this is 0
  U8 carry = 0;  // 0 or 1, as are the flags below
  U8 overflow = 0;
  U8 decimal = 0;
  U8 interrupt = 0;
  I32 cycles = 0;  // since the frame began
};

// RAM, input and output, timer.
struct Riot {
  U8 ram[128] = {};
  U8 timer = 0;             // as last written
  U8 shift = 0;             // the timer falls every 1 << shift cycles
  U8 read_expired = 0;      // the timer was read after it had expired
  I32 set_cycle = 0;        // when the timer was written
  I32 expired_read_cycle = 0;  // when it was first read after it expired
  U8 direction_a = 0;
};

// The 160 pixels of a line; the first one is bit 0 of the first word.
struct Mask {
  U64 words[3] = {0, 0, 0};
};

// The objects of the TIA, in the order of Tia::masks.
enum Object : I32 { kP0, kP1, kM0, kM1, kBall, kPlayfield, kObjects };

struct Tia {
  // clocks, counted from the beginning of the frame
  I32 frame_start = 0;  // start of the first line, perhaps in the frame before
  I32 first_shown = 0;
  I32 last_shown = 0;   // the clock after the last one shown
  I32 drawn_until = 0;
  I32 line_start = 0;  // start of the line to be drawn next, or of a later one
  I32 row = 0;         // index of that line's first pixel in the screen
  I32 vsync_end = kNever;  // switching VSYNC off ends the frame from then on
  I32 last_hmove = 0;      // may be negative: in an earlier frame
  I32 dump_end = 0;        // a cycle, not a clock
  I32 touched = 0;         // when the CPU last read or wrote a register
  I32 touched_register = 0;  // the register of a write; kReadAccess for a read
  I32 too_late = kNever;   // any write ends the frame from then on
  I32 alarm = kNever;      // from then on accesses call Notice
  I32 blanked = kNever;    // clock of the first access that saw hmove_blank
  I32 blanked_register = 0;  // register of that access, as in touched_register

  U8 vsync = 0;
  U8 vblank = 0;
  U8 nusiz[2] = {};
  U8 colour[4] = {};  // P0, P1, playfield, background
  U8 ctrlpf = 0;
  U8 reflect = 0;  // CTRLPF's reflect bit, as used in this line
  U8 refp[2] = {};
  U8 pf[3] = {};
  U8 grp[2] = {};
  U8 old_grp[2] = {};
  U8 enam[2] = {};
  U8 enabl = 0;
  U8 old_enabl = 0;
  U8 hm[5] = {};   // the upper four bits, signed: P0, P1, M0, M1, ball
  U8 vdelp[2] = {};
  U8 vdelbl = 0;
  U8 resmp[2] = {};
  U8 pos[5] = {};  // 0..159: P0, P1, M0, M1, ball
  U8 skip_first[2] = {};  // after RESPx: this line does not show the first copy
  U8 hmove_blank = 0;     // the first 8 pixels of this line are black
  U8 stars = 0;        // missile 0 moves by itself in every line
  U8 star_line = 0;    // 0..3: its moves repeat after four lines
  U8 star_shape = 0;   // 0: missile 0 has its own shape in this line, 1: wide, 2: none
  U8 dump = 0;
  U8 stale = 0x3f;        // a bit for each Object: its mask has to be made again
  U8 present = 0;         // a bit for each Object: its mask, unless stale, is not empty
  U8 line_is_plain = 0;   // the row above was drawn as a whole, and nothing has changed since
  U8 frame_done = 0;
  U16 collisions = 0;     // bit 2i + 1: bit 7 of the i-th collision register, 2i: bit 6
  Mask masks[kObjects];
};

enum class CartridgeKind : U8 { kPlain, kF8, kF6, kE0, kFE, kF8SC, kF6SC, kDpc };

inline ROLLOUTS_HD constexpr bool HasRam(CartridgeKind kind) {
  return kind == CartridgeKind::kF8SC || kind == CartridgeKind::kF6SC;
}

// Pitfall II's chip: a random number, and eight pointers into 2 KiB of graphics.
struct Dpc {
  U8 tops[8] = {};
  U8 bottoms[8] = {};
  U16 counters[8] = {};
  U8 flags[8] = {};  // 0xff inside the window from top to bottom
  U8 music[8] = {};  // the pointer belongs to a voice
  U8 random = 1;
};

struct Console;
struct Instruction;
namespace jit {
class CompiledRom;
}

// A ROM whose instructions were decoded, and the code that runs them in place of Execute: see
// decoded_rom.h.
struct Decoded {
  using Run = void(Console& c, const Decoded& rom, I32 end);
  const Instruction* records = nullptr;
  const jit::CompiledRom* compiled = nullptr;  // their machine code, where there is any
  Run* run = nullptr;
};

struct Cartridge {
  const U8* rom = nullptr;  // borrowed; shared by all environments of the game
  const Decoded* decoded = nullptr;  // the decoded rom, or null; borrowed as well
  U32 slices[4] = {};       // offset in rom of each of the four KiB at 0x1000
  U8 bank = 0;
  U8 ram[128] = {};
  Dpc dpc;
};

// A player's inputs, and the switches.
struct Inputs {
  U8 port_a = 0xff;      // joysticks, low where pushed
  U8 switches = 0x3f;    // the console's
  U8 fire[2] = {0x80, 0x80};  // INPT4 and INPT5: high where not pressed
  // cycles until each of INPT0..3 is high
  I32 paddles[4] = {kEmptyPaddle, kEmptyPaddle, kEmptyPaddle, kEmptyPaddle};
};

// Facts that hold in all frames of a game.
struct Board {
  CartridgeKind kind = CartridgeKind::kPlain;
  U8 pal = 0;
  U8 hmove_blanks = 1;  // off: HMOVE makes no pixels black
  I32 first_line = 34;
  I32 height = 210;
  I32 max_lines = 290;  // the first write to the TIA after these ends a frame
};

struct Console {
  Cpu cpu;
  Riot riot;
  Tia tia;
  Cartridge cartridge;
  Inputs inputs;
  Board board;
  U8 bus = 0;            // the last byte on the data bus; kept only where the CPU left the ROM
  U8 jammed = 0;         // the CPU has met an instruction that stops it
  U8 partial = 0;        // the last frame ran out of instructions
  U8 odd_lines = 0;      // PAL: the last frame had an odd number of lines
  U8 shown = 0;          // number of the newest screen
  U8* screens[2] = {nullptr, nullptr};  // borrowed: (height, 160) palette indices
};

}  // namespace rollouts::atari2600
