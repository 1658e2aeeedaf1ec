// SPDX-License-Identifier: Apache-2.0
// The TIA's registers. Sources: "Stella Programmer's Guide" by Steve Wright, "Atari 2600 TIA
// Hardware Notes" by Andrew Towers; where ale-py approximates, its measured numbers.
#pragma once

#include "rollouts/atari2600/tia_access.h"

namespace rollouts::atari2600 {

// The number of pixels to the left that an object with motion register `hm` moves, when HMOVE
// strikes in `cycle` of a line. A pulse comes every 4 clocks, and moves an object only in the
// blank part of a line.
inline ROLLOUTS_HD I32 MotionOf(I32 hm, I32 cycle) {
  const I32 left = hm < 8 ? hm : hm - 16;
  // the last pulses, which would move left, come too late
  if (cycle <= 3 || cycle == 75) return left;
  if (cycle <= 20) {
    const I32 most = 7 - (3 * (cycle - 3) + 2) / 4;
    return left < most ? left : most;
  }
  if (cycle < 55) return 0;
  // the last pulses come in the blank part of the next line, which is not extended
  const I32 moved = left + ((3 * (cycle - 63) + 2) >> 2);
  return moved > 0 ? moved : 0;
}

inline ROLLOUTS_HD void Touch(Tia& tia, U32 objects) {
  tia.stale |= static_cast<U8>(objects);
  tia.line_is_plain = 0;
}

inline ROLLOUTS_HD void StrikePlayer(Console& c, I32 i, I32 clock, I32 column) {
  Tia& tia = c.tia;
  const I32 at = column < kBlankClocks ? 3 : (column - 63) % kWidth;
  const I32 mode = tia.nusiz[i] & 7;
  const I32 size = mode == 5 ? 16 : mode == 7 ? 32 : 8;
  bool skips = true;
  U32 copies = CopiesOf(tia.nusiz[i]);
  for (I32 copy = tia.pos[i]; copies; copies >>= 1, copy += 16) {
    if (!(copies & 1)) continue;
    const I32 behind = (at - copy + 2 * kWidth) % kWidth;
    if (behind < 4) {
      skips = false;
    } else if (behind < 4 + size) {
      // a copy that is being shown continues for some pixels
      DrawUntil(c, clock + 11);
    }
  }
  tia.skip_first[i] = skips;
  tia.pos[i] = static_cast<U8>(at);
  Touch(tia, 1u << (kP0 + i));
}

// The object's position after RESM0, RESM1 or RESBL. Soon after an HMOVE, some games get other
// positions; `since` is in clocks.
inline ROLLOUTS_HD I32 StruckPosition(I32 object, I32 since, I32 column) {
  struct Exception {
    U8 object;
    U8 since;
    U8 column;
    U8 position;
  };
  static constexpr Exception kExceptions[] = {
      {kM0, 60, 69, 8},   {kM1, 9, 18, 3},    {kBall, 9, 18, 3},  {kBall, 18, 27, 5},
      {kBall, 21, 30, 6}, {kBall, 54, 60, 10}, {kBall, 54, 69, 10}};
  for (const Exception& each : kExceptions) {
    if (each.object == object && each.since == since && each.column == column) {
      return each.position;
    }
  }
  return column < kBlankClocks ? 2 : (column - 64) % kWidth;
}

inline ROLLOUTS_HD void Hmove(Console& c, I32 clock, I32 column) {
  Tia& tia = c.tia;
  tia.last_hmove = clock;
  const I32 cycle = column / 3;
  if (c.board.hmove_blanks && (cycle <= 20 || cycle == 75) && !tia.hmove_blank) {
    tia.hmove_blank = 1;
    tia.alarm = clock + 1;
  }
  // most objects neither move nor change their shape
  U32 touched = tia.star_shape ? 1u << kM0 : 0;
  for (I32 i = 0; i < 5; ++i) {
    const I32 motion = MotionOf(tia.hm[i], cycle);
    if (!motion) continue;
    tia.pos[i] = static_cast<U8>((tia.pos[i] - motion + 2 * kWidth) % kWidth);
    touched |= 1u << i;
  }
  for (I32 i = 0; i < 2; ++i) touched |= U32{tia.skip_first[i]} << (kP0 + i);
  tia.skip_first[0] = tia.skip_first[1] = 0;
  tia.stars = tia.star_shape = 0;
  if (touched) Touch(tia, touched);
}

// A write to HMM0 while an HMOVE is still active: from then on missile 0 gets an extra pulse in
// every line.
inline ROLLOUTS_HD void StartStars(Console& c, I32 clock, U8 motion) {
  constexpr I32 kSince = 63;  // clocks
  Tia& tia = c.tia;
  if (clock - tia.last_hmove != kSince || tia.hm[2] != 7 || motion != 6) return;
  DrawUntil(c, clock);
  tia.stars = 1;
  tia.star_line = 0;
}

// The column up to which a line takes over a change of CTRLPF's reflection of the playfield.
inline constexpr I32 kReflects = kBlankClocks + 79;

// Tells if a write changes nothing.
ROLLOUTS_INLINE bool IsSame(const Tia& tia, I32 reg, U8 value, I32 column) {
  switch (reg) {
    case 0x04:
    case 0x05:
      return tia.nusiz[reg - 4] == value && !tia.skip_first[reg - 4] && !tia.stars;
    case 0x06:
    case 0x07:
    case 0x08:
    case 0x09: return tia.colour[reg - 6] == value;
    case 0x0a: return tia.ctrlpf == value && (column >= kReflects || tia.reflect == (value & 1));
    case 0x0b:
    case 0x0c: return tia.refp[reg - 0x0b] == ((value >> 3) & 1);
    case 0x0d:
    case 0x0e:
    case 0x0f: return tia.pf[reg - 0x0d] == value;
    case 0x1b: return tia.grp[0] == value && tia.old_grp[1] == tia.grp[1];
    case 0x1c:
      return tia.grp[1] == value && tia.old_grp[0] == tia.grp[0] && tia.old_enabl == tia.enabl;
    case 0x1d:
    case 0x1e: return tia.enam[reg - 0x1d] == ((value >> 1) & 1);
    case 0x1f: return tia.enabl == ((value >> 1) & 1);
    case 0x25:
    case 0x26: return tia.vdelp[reg - 0x25] == (value & 1);
    case 0x27: return tia.vdelbl == (value & 1);
    case 0x28:
    case 0x29: return tia.resmp[reg - 0x28] == ((value >> 1) & 1);
    default: return false;
  }
}

inline ROLLOUTS_HD bool ShowsPlayfield(const Tia& tia) {
  return tia.pf[0] | tia.pf[1] | tia.pf[2];
}

// Tells if a write that changes a register changes the picture or collisions. Where it does not,
// nothing has to be drawn before it: most writes are to objects that are not shown.
ROLLOUTS_INLINE bool IsSeen(const Tia& tia, I32 reg, U8 value) {
  // in these lines a missile's shape depends on the line
  if (tia.stars) return true;
  switch (reg) {
    case 0x00:
    case 0x20:
    case 0x21:
    case 0x22:
    case 0x23:
    case 0x24:
    case 0x2b: return false;
    case 0x01: return (tia.vblank ^ value) & 2;
    case 0x04:
    case 0x05: return ShowsPlayer(tia, reg - 4) || ShowsMissile(tia, reg - 4);
    case 0x06:
    case 0x07:
      // the playfield may have the players' colours
      return ShowsPlayer(tia, reg - 6) || ShowsMissile(tia, reg - 6) || (tia.ctrlpf & 2);
    case 0x08: return ShowsPlayfield(tia) || ShowsBall(tia);
    case 0x0b:
    case 0x0c: return ShowsPlayer(tia, reg - 0x0b);
    case 0x12:
    case 0x13: return ShowsMissile(tia, reg - 0x12);
    case 0x14: return ShowsBall(tia);
    case 0x1b:
      return (!tia.vdelp[0] && tia.grp[0] != value) ||
             (tia.vdelp[1] && tia.old_grp[1] != tia.grp[1]);
    case 0x1c:
      return (!tia.vdelp[1] && tia.grp[1] != value) ||
             (tia.vdelp[0] && tia.old_grp[0] != tia.grp[0]) ||
             (tia.vdelbl && tia.old_enabl != tia.enabl);
    case 0x1d:
    case 0x1e: return !tia.resmp[reg - 0x1d];
    case 0x1f: return !tia.vdelbl;
    case 0x25:
    case 0x26: return tia.grp[reg - 0x25] != tia.old_grp[reg - 0x25];
    case 0x27: return tia.enabl != tia.old_enabl;
    case 0x28:
    case 0x29: return tia.enam[reg - 0x28];
    default: return true;
  }
}

// Writes to a register other than WSYNC. For a constant `reg` the compiler keeps only that
// register's code.
ROLLOUTS_INLINE void WriteRegister(Console& c, I32 reg, U8 value, I32 cycles, I32 clock) {
  Tia& tia = c.tia;
  const I32 column = Column(tia, clock);
  if (reg >= 0x06 && reg <= 0x09) value = (value & 0xfe) | (c.board.pal & c.odd_lines);
  if (IsSame(tia, reg, value, column)) return;
  if (IsSeen(tia, reg, value)) DrawUntil(c, clock + WriteDelay(reg, column));

  switch (reg) {
    case 0x00:
      if (value & 2) tia.vsync_end = clock + kLineClocks;
      if (!(value & 2) && clock >= tia.vsync_end) {
        tia.vsync_end = kNever;
        tia.frame_done = 1;
      }
      tia.vsync = value;
      break;
    case 0x01:
      if (!(tia.vblank & 0x80) && (value & 0x80)) tia.dump = 1;
      if ((tia.vblank & 0x80) && !(value & 0x80)) {
        tia.dump = 0;
        tia.dump_end = cycles;
      }
      if ((tia.vblank ^ value) & 2) tia.line_is_plain = 0;
      tia.vblank = value;
      break;
    case 0x04:
    case 0x05:
      tia.nusiz[reg - 4] = value;
      tia.skip_first[reg - 4] = 0;
      if (reg == 0x04) tia.star_shape = 0;
      Touch(tia, reg == 4 ? 0x05 : 0x0a);
      break;
    case 0x06:
    case 0x07:
    case 0x08:
    case 0x09:
      tia.colour[reg - 6] = value;
      tia.line_is_plain = 0;
      break;
    case 0x0a:
      tia.ctrlpf = value;
      if (column < kReflects) tia.reflect = value & 1;
      Touch(tia, (1u << kPlayfield) | (1u << kBall));
      break;
    case 0x0b:
    case 0x0c:
      tia.refp[reg - 0x0b] = (value >> 3) & 1;
      Touch(tia, 1u << (reg - 0x0b));
      break;
    case 0x0d:
    case 0x0e:
    case 0x0f:
      tia.pf[reg - 0x0d] = value;
      Touch(tia, 1u << kPlayfield);
      break;
    case 0x10:
    case 0x11: StrikePlayer(c, reg - 0x10, clock, column); break;
    case 0x12:
    case 0x13:
    case 0x14:
      tia.pos[kM0 + reg - 0x12] =
          static_cast<U8>(StruckPosition(kM0 + reg - 0x12, clock - tia.last_hmove, column));
      if (reg == 0x12) tia.star_shape = 0;
      Touch(tia, 1u << (kM0 + reg - 0x12));
      break;
    case 0x1b:
      tia.grp[0] = value;
      tia.old_grp[1] = tia.grp[1];
      // the delay selects the new or the old value of each register
      Touch(tia, U32{!tia.vdelp[0]} << kP0 | U32{tia.vdelp[1]} << kP1);
      break;
    case 0x1c:
      tia.grp[1] = value;
      tia.old_grp[0] = tia.grp[0];
      tia.old_enabl = tia.enabl;
      Touch(tia, U32{!tia.vdelp[1]} << kP1 | U32{tia.vdelp[0]} << kP0 | U32{tia.vdelbl} << kBall);
      break;
    case 0x1d:
    case 0x1e:
      tia.enam[reg - 0x1d] = (value >> 1) & 1;
      Touch(tia, 1u << (kM0 + reg - 0x1d));
      break;
    case 0x1f:
      tia.enabl = (value >> 1) & 1;
      Touch(tia, 1u << kBall);
      break;
    case 0x20:
    case 0x21:
    case 0x22:
    case 0x23:
    case 0x24: {
      const U8 nibble = value >> 4;
      if (reg == 0x22) StartStars(c, clock, nibble);
      tia.hm[reg - 0x20] = nibble;
      break;
    }
    case 0x25:
    case 0x26:
      tia.vdelp[reg - 0x25] = value & 1;
      Touch(tia, 1u << (reg - 0x25));
      break;
    case 0x27:
      tia.vdelbl = value & 1;
      Touch(tia, 1u << kBall);
      break;
    case 0x28:
    case 0x29: {
      const I32 i = reg - 0x28;
      const U8 locked = (value >> 1) & 1;
      if (tia.resmp[i] && !locked) {
        const I32 mode = tia.nusiz[i] & 7;
        const I32 middle = mode == 5 ? 8 : mode == 7 ? 16 : 4;
        tia.pos[kM0 + i] = static_cast<U8>((tia.pos[i] + middle) % kWidth);
      }
      tia.resmp[i] = locked;
      if (i == 0) tia.star_shape = 0;
      Touch(tia, 1u << (kM0 + i));
      break;
    }
    case 0x2a: Hmove(c, clock, column); break;
    case 0x2b:
      for (U8& hm : tia.hm) hm = 0;
      break;
    case 0x2c:
      tia.collisions = 0;
      tia.line_is_plain = 0;
      break;
    default: break;
  }
}

#define ROLLOUTS_REG(REG) \
  case REG: return WriteRegister(c, REG, value, cycles, clock);

// `cycles` is when the writing instruction ends; WSYNC increases it.
inline ROLLOUTS_NOINLINE void WriteTia(Console& c, I32 address, U8 value, I32& cycles) {
  Tia& tia = c.tia;
  const I32 clock = cycles * 3;
  const I32 reg = address & 0x3f;
  BeginAccess(tia, reg, clock);
  switch (reg) {
    case 0x02: {
      const I32 rest = (clock - tia.frame_start) % kLineClocks / 3;
      if (rest) cycles += kLineCycles - rest;
      return;
    }
    ROLLOUTS_REG(0x00) ROLLOUTS_REG(0x01) ROLLOUTS_REG(0x04) ROLLOUTS_REG(0x05) ROLLOUTS_REG(0x06)
    ROLLOUTS_REG(0x07) ROLLOUTS_REG(0x08) ROLLOUTS_REG(0x09) ROLLOUTS_REG(0x0a) ROLLOUTS_REG(0x0b)
    ROLLOUTS_REG(0x0c) ROLLOUTS_REG(0x0d) ROLLOUTS_REG(0x0e) ROLLOUTS_REG(0x0f) ROLLOUTS_REG(0x10)
    ROLLOUTS_REG(0x11) ROLLOUTS_REG(0x12) ROLLOUTS_REG(0x13) ROLLOUTS_REG(0x14) ROLLOUTS_REG(0x1b)
    ROLLOUTS_REG(0x1c) ROLLOUTS_REG(0x1d) ROLLOUTS_REG(0x1e) ROLLOUTS_REG(0x1f) ROLLOUTS_REG(0x20)
    ROLLOUTS_REG(0x21) ROLLOUTS_REG(0x22) ROLLOUTS_REG(0x23) ROLLOUTS_REG(0x24) ROLLOUTS_REG(0x25)
    ROLLOUTS_REG(0x26) ROLLOUTS_REG(0x27) ROLLOUTS_REG(0x28) ROLLOUTS_REG(0x29) ROLLOUTS_REG(0x2a)
    ROLLOUTS_REG(0x2b) ROLLOUTS_REG(0x2c)
    // sounds, and addresses without a register
    default: return;
  }
}

#undef ROLLOUTS_REG

// Reads INPT0..3: a capacitor, which VBLANK bit 7 empties, fills through the paddle.
inline ROLLOUTS_HD U8 ReadPaddle(const Console& c, I32 i, I32 cycles) {
  const I32 needed = c.inputs.paddles[i];
  if (needed == kFullPaddle) return 0x80;
  if (needed == kEmptyPaddle || c.tia.dump) return 0;
  // ale-py adds unsigned numbers: a capacitor that was full in an earlier frame reads as empty
  return static_cast<U32>(cycles) > static_cast<U32>(c.tia.dump_end + needed) ? 0x80 : 0;
}

// `bus` is the last byte on the data bus: the TIA drives only the upper bits.
inline ROLLOUTS_NOINLINE U8 ReadTia(Console& c, I32 address, U8 bus, I32 cycles) {
  BeginAccess(c.tia, kReadAccess, cycles * 3);
  DrawUntil(c, cycles * 3);
  const I32 reg = address & 0x0f;
  const U8 noise = bus & 0x3f;
  if (reg < 8) return static_cast<U8>((((c.tia.collisions >> (2 * reg)) & 3) << 6) | noise);
  if (reg < 12) return ReadPaddle(c, reg - 8, cycles) | noise;
  if (reg < 14) return c.inputs.fire[reg - 12] | noise;
  return noise;
}

}  // namespace rollouts::atari2600
