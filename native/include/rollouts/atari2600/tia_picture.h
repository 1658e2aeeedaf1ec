// SPDX-License-Identifier: Apache-2.0
// What the TIA shows: masks of its objects, collisions, pixels. Nothing is drawn before a register
// changes the picture or the frame ends; then DrawUntil draws all that is due.
#pragma once

#include "rollouts/atari2600/console.h"
#include "rollouts/core/math.h"

namespace rollouts::atari2600 {

// Where the copies of a player or missile are, by NUSIZ: 8 bits, of 16 pixels each, from the first.
inline ROLLOUTS_HD U32 CopiesOf(U8 nusiz) {
  static constexpr U8 kCopies[8] = {0x01, 0x03, 0x05, 0x07, 0x11, 0x01, 0x15, 0x01};
  return kCopies[nusiz & 7];
}

inline ROLLOUTS_HD U64 LowBits(I32 count) {
  return count >= 64 ? ~U64{0} : (U64{1} << count) - 1;
}

// Pixels first .. last - 1.
inline ROLLOUTS_HD Mask RangeMask(I32 first, I32 last) {
  Mask mask;
  for (I32 w = 0; w < 3; ++w) {
    const I32 from = first - 64 * w;
    const I32 to = last - 64 * w;
    if (to <= 0 || from >= 64) continue;
    mask.words[w] = LowBits(to > 64 ? 64 : to) & ~LowBits(from < 0 ? 0 : from);
  }
  return mask;
}

// Adds a pattern, its first pixel in bit 0, at a position; what passes the line's end comes in at
// its start.
inline ROLLOUTS_HD void AddPattern(Mask& mask, U64 pattern, I32 position) {
  const I32 word = position >> 6;
  const I32 bit = position & 63;
  mask.words[word] |= pattern << bit;
  const U64 carried = bit ? pattern >> (64 - bit) : 0;
  if (word < 2) {
    mask.words[word + 1] |= carried;
    // the third word ends at pixel 160
    mask.words[0] |= mask.words[2] >> 32;
  } else {
    mask.words[0] |= (mask.words[2] >> 32) | (carried << 32);
  }
  mask.words[2] &= 0xffffffffu;
}

// Of every byte: its bits in reverse, and each of its bits four times.
struct ByteTables {
  U8 reversed[256] = {};
  U32 four[256] = {};
  ROLLOUTS_HD constexpr ByteTables() {
    for (I32 byte = 0; byte < 256; ++byte) {
      for (I32 bit = 0; bit < 8; ++bit) {
        if (!(byte >> bit & 1)) continue;
        reversed[byte] = static_cast<U8>(reversed[byte] | 0x80 >> bit);
        four[byte] |= U32{0xf} << (4 * bit);
      }
    }
  }
};
inline ROLLOUTS_HD const ByteTables& TablesOfBytes() {
  static constexpr ByteTables kTables;
  return kTables;
}

inline ROLLOUTS_HD U32 ReverseByte(U32 v) { return TablesOfBytes().reversed[v & 0xff]; }

// Every bit of a byte twice.
inline ROLLOUTS_HD U32 DoubleBits(U32 v) {
  v = (v | (v << 4)) & 0x0f0f;
  v = (v | (v << 2)) & 0x3333;
  v = (v | (v << 1)) & 0x5555;
  return v | (v << 1);
}

inline ROLLOUTS_HD Mask PlayerMask(const Tia& tia, I32 i) {
  Mask mask;
  const U32 graphics = tia.vdelp[i] ? tia.old_grp[i] : tia.grp[i];
  if (!graphics) return mask;
  // GRP's bit 7 is the left pixel
  const U32 bits = tia.refp[i] ? graphics : ReverseByte(graphics);
  const I32 mode = tia.nusiz[i] & 7;
  if (mode == 5 || mode == 7) {
    // wide players start a pixel late
    if (tia.skip_first[i]) return mask;
    U64 wide = DoubleBits(bits);
    if (mode == 7) wide = DoubleBits(wide & 0xff) | (U64{DoubleBits(wide >> 8)} << 16);
    AddPattern(mask, wide << 1, tia.pos[i]);
    return mask;
  }
  U32 copies = CopiesOf(tia.nusiz[i]);
  if (tia.skip_first[i]) copies &= ~U32{1};
  for (I32 at = tia.pos[i]; copies; copies >>= 1, at += 16) {
    if (copies & 1) AddPattern(mask, bits, at % kWidth);
  }
  return mask;
}

inline ROLLOUTS_HD Mask MissileMask(const Tia& tia, I32 i) {
  Mask mask;
  if (!tia.enam[i] || tia.resmp[i]) return mask;
  I32 size = (tia.nusiz[i] >> 4) & 3;
  if (i == 0 && tia.star_shape) {
    if (tia.star_shape == 2) return mask;
    size |= 1;
  }
  const U64 bits = LowBits(1 << size);
  U32 copies = CopiesOf(tia.nusiz[i]);
  for (I32 at = tia.pos[kM0 + i]; copies; copies >>= 1, at += 16) {
    if (copies & 1) AddPattern(mask, bits, at % kWidth);
  }
  return mask;
}

inline ROLLOUTS_HD Mask BallMask(const Tia& tia) {
  Mask mask;
  if (!(tia.vdelbl ? tia.old_enabl : tia.enabl)) return mask;
  AddPattern(mask, LowBits(1 << ((tia.ctrlpf >> 4) & 3)), tia.pos[kBall]);
  return mask;
}

inline ROLLOUTS_HD Mask PlayfieldMask(const Tia& tia) {
  Mask mask;
  if (!(tia.pf[0] >> 4 | tia.pf[1] | tia.pf[2])) return mask;
  // half a line: half of PF0, PF1 from its bit 7, PF2 from its bit 0; four pixels a bit
  const ByteTables& tables = TablesOfBytes();
  const U64 first = tables.four[tia.pf[0] >> 4];
  const U64 second = tables.four[tables.reversed[tia.pf[1]]];
  const U64 third = tables.four[tia.pf[2]];
  mask.words[0] = first | second << 16 | third << 48;
  mask.words[1] = third >> 16;
  if (tia.reflect) {
    mask.words[1] |= U64{tables.four[tables.reversed[tia.pf[2]]]} << 16;
    const U64 back = tables.four[tia.pf[1]];
    mask.words[1] |= back << 48;
    mask.words[2] = back >> 16 | U64{tables.four[tables.reversed[tia.pf[0]] & 0x0f]} << 16;
  } else {
    mask.words[1] |= mask.words[0] << 16;
    mask.words[2] = mask.words[0] >> 48 | third >> 16 << 16;
  }
  return mask;
}

inline ROLLOUTS_HD bool IsEmpty(const Mask& mask) {
  return !(mask.words[0] | mask.words[1] | mask.words[2]);
}

ROLLOUTS_INLINE void Renew(Tia& tia, I32 object, const Mask& mask) {
  tia.masks[object] = mask;
  const U32 bit = 1u << object;
  tia.present = static_cast<U8>(IsEmpty(mask) ? tia.present & ~bit : tia.present | bit);
}

inline ROLLOUTS_HD void RefreshMasks(Tia& tia) {
  if (tia.stale & (1 << kP0)) Renew(tia, kP0, PlayerMask(tia, 0));
  if (tia.stale & (1 << kP1)) Renew(tia, kP1, PlayerMask(tia, 1));
  if (tia.stale & (1 << kM0)) Renew(tia, kM0, MissileMask(tia, 0));
  if (tia.stale & (1 << kM1)) Renew(tia, kM1, MissileMask(tia, 1));
  if (tia.stale & (1 << kBall)) Renew(tia, kBall, BallMask(tia));
  if (tia.stale & (1 << kPlayfield)) Renew(tia, kPlayfield, PlayfieldMask(tia));
  tia.stale = 0;
}

// Two objects, and which bit of Tia::collisions says that they met.
struct CollisionPair {
  U8 a;
  U8 b;
  U8 bit;
};

// `present`: the objects whose masks are not empty.
inline ROLLOUTS_HD void Collide(Tia& tia, const Mask* m, U32 present) {
  static constexpr CollisionPair kPairs[15] = {
      {kM0, kP1, 1},        {kM0, kP0, 0},          {kM1, kP0, 3},        {kM1, kP1, 2},
      {kP0, kPlayfield, 5}, {kP0, kBall, 4},        {kP1, kPlayfield, 7}, {kP1, kBall, 6},
      {kM0, kPlayfield, 9}, {kM0, kBall, 8},        {kM1, kPlayfield, 11}, {kM1, kBall, 10},
      {kBall, kPlayfield, 13}, {kP0, kP1, 15},      {kM0, kM1, 14}};
  if (!(present & (present - 1))) return;
  // most often nothing meets anything
  U64 once[3] = {0, 0, 0};
  U64 twice = 0;
  for (I32 i = 0; i < kObjects; ++i) {
    if (!(present >> i & 1)) continue;
    for (I32 w = 0; w < 3; ++w) {
      twice |= once[w] & m[i].words[w];
      once[w] |= m[i].words[w];
    }
  }
  if (!twice) return;
  for (const CollisionPair& pair : kPairs) {
    if (!((present >> pair.a) & (present >> pair.b) & 1)) continue;
    if ((tia.collisions >> pair.bit) & 1) continue;
    const Mask& a = m[pair.a];
    const Mask& b = m[pair.b];
    const U64 both = (a.words[0] & b.words[0]) | (a.words[1] & b.words[1]) |
                     (a.words[2] & b.words[2]);
    if (both) tia.collisions |= static_cast<U16>(1u << pair.bit);
  }
}

// Sets the pixels of `mask` to a colour, eight at a time.
inline ROLLOUTS_HD void Paint(U8* row, const Mask& mask, U8 colour) {
  const U64 colours = U64{colour} * 0x0101010101010101u;
  for (I32 w = 0; w < 3; ++w) {
    U64 bits = mask.words[w];
    U8* at = row + 64 * w;
    while (bits) {
      const I32 empty = LowestBit(bits) & ~7;  // pixels
      bits >>= empty;
      at += empty;
      const U64 byte = bits & 0xff;
      if (byte == 0xff) {
        CopyBytes(at, &colours, 8);
      } else {
        // a byte of ones for every bit
        U64 spread = (byte * 0x0101010101010101u) & 0x8040201008040201u;
        spread = ((spread + 0x7f7f7f7f7f7f7f7fu) | spread) >> 7 & 0x0101010101010101u;
        spread *= 0xff;
        U64 pixels;
        CopyBytes(&pixels, at, 8);
        pixels = (pixels & ~spread) | (colours & spread);
        CopyBytes(at, &pixels, 8);
      }
      bits >>= 8;
      at += 8;
    }
  }
}

inline ROLLOUTS_HD Mask And(const Mask& a, const Mask& b) {
  return {{a.words[0] & b.words[0], a.words[1] & b.words[1], a.words[2] & b.words[2]}};
}

inline ROLLOUTS_HD Mask Or(const Mask& a, const Mask& b) {
  return {{a.words[0] | b.words[0], a.words[1] | b.words[1], a.words[2] | b.words[2]}};
}

// From the back to the front.
inline ROLLOUTS_HD void PaintObjects(const Tia& tia, const Mask* m, U32 present, U8* row) {
  const bool has_one = present & (1u << kP1 | 1u << kM1);
  const bool has_zero = present & (1u << kP0 | 1u << kM0);
  const bool has_field = present & (1u << kPlayfield | 1u << kBall);
  const Mask one = Or(m[kP1], m[kM1]);
  const Mask zero = Or(m[kP0], m[kM0]);
  if (tia.ctrlpf & 4) {
    if (has_one) Paint(row, one, tia.colour[1]);
    if (has_zero) Paint(row, zero, tia.colour[0]);
    if (has_field) Paint(row, Or(m[kPlayfield], m[kBall]), tia.colour[2]);
  } else if (tia.ctrlpf & 2) {
    // the playfield has the players' colours; its left half hides player 1
    const Mask left = RangeMask(0, kWidth / 2);
    const Mask right = RangeMask(kWidth / 2, kWidth);
    Paint(row, m[kBall], tia.colour[2]);
    Paint(row, And(m[kPlayfield], right), tia.colour[1]);
    Paint(row, one, tia.colour[1]);
    Paint(row, And(m[kPlayfield], left), tia.colour[0]);
    Paint(row, zero, tia.colour[0]);
  } else {
    if (has_field) Paint(row, Or(m[kPlayfield], m[kBall]), tia.colour[2]);
    if (has_one) Paint(row, one, tia.colour[1]);
    if (has_zero) Paint(row, zero, tia.colour[0]);
  }
}

// Fills and copies in words: what compilers make of a memset of any length takes longer.
inline ROLLOUTS_HD void FillPixels(U8* at, U8 colour, I32 size) {
  constexpr I32 kWord = 8;
  if (size < kWord) {
    for (I32 i = 0; i < size; ++i) at[i] = colour;
    return;
  }
  const U64 colours = U64{colour} * 0x0101010101010101u;
  for (I32 i = 0; i < size - kWord; i += kWord) CopyBytes(at + i, &colours, kWord);
  // the last word may overlap the one before
  CopyBytes(at + size - kWord, &colours, kWord);
}
inline ROLLOUTS_HD void FillLine(U8* row, U8 colour) {
  const U64 colours = U64{colour} * 0x0101010101010101u;
  for (I32 i = 0; i < kWidth; i += 8) CopyBytes(row + i, &colours, 8);
}
inline ROLLOUTS_HD void CopyLine(U8* row, const U8* from) {
  for (I32 i = 0; i < kWidth; i += 8) CopyBytes(row + i, from + i, 8);
}

// Draws a whole line, which is not black.
inline ROLLOUTS_HD void DrawLine(Tia& tia, U8* row) {
  // the same line once more: its collisions are known, too
  if (tia.line_is_plain && !tia.hmove_blank) {
    CopyLine(row, row - kWidth);
    return;
  }
  if (tia.stale) RefreshMasks(tia);
  FillLine(row, tia.colour[3]);
  if (tia.present) {
    Collide(tia, tia.masks, tia.present);
    PaintObjects(tia, tia.masks, tia.present, row);
  }
  tia.line_is_plain = !tia.hmove_blank;
  if (tia.hmove_blank) FillBytes(row, 0, 8);
}

// Draws pixels first .. last - 1 of a line.
inline ROLLOUTS_HD void DrawSegment(Tia& tia, U8* row, I32 first, I32 last) {
  const I32 size = last - first;
  if (tia.vblank & 2) {
    FillPixels(row + first, 0, size);
    return;
  }
  if (size == kWidth) return DrawLine(tia, row);
  if (tia.stale) RefreshMasks(tia);
  FillPixels(row + first, tia.colour[3], size);
  if (tia.present) {
    const Mask range = RangeMask(first, last);
    const Mask* const m = tia.masks;
    // of the absent ones, too, which are empty: a branch for each takes longer
    const Mask cut[kObjects] = {And(m[kP0], range), And(m[kP1], range),   And(m[kM0], range),
                                And(m[kM1], range), And(m[kBall], range), And(m[kPlayfield], range)};
    U32 present = 0;
    for (I32 i = 0; i < kObjects; ++i) {
      if (!IsEmpty(cut[i])) present |= 1u << i;
    }
    if (present) {
      Collide(tia, cut, present);
      PaintObjects(tia, cut, present, row);
    }
  }
  tia.line_is_plain = 0;
  if (tia.hmove_blank && first < 8) FillBytes(row + first, 0, (last < 8 ? last : 8) - first);
}

// Cosmic Ark's stars: missile 0 moves by 68 pixels in four lines, and has other shapes in two.
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
  tia.hmove_blank = 0;
  // what a line began with no longer holds
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

// Draws until `clock`, which is later than drawn_until and not behind what is shown.
inline ROLLOUTS_NOINLINE void DrawDue(Console& c, I32 clock) {
  Tia& tia = c.tia;
  // lines begin at drawn_until - column
  I32 column = (tia.drawn_until - tia.first_shown) % kLineClocks;
  I32 y = (tia.drawn_until - tia.first_shown) / kLineClocks;
  I32 left = clock - tia.drawn_until;
  tia.drawn_until = clock;
  U8* row = c.screens[c.shown] + y * kWidth;
  while (left > 0) {
    const I32 end = column + left < kLineClocks ? column + left : kLineClocks;
    const I32 first = column > kBlankClocks ? column - kBlankClocks : 0;
    if (end > kBlankClocks) {
      if (y == 0) tia.line_is_plain = 0;
      DrawSegment(tia, row, first, end - kBlankClocks);
    }
    left -= end - column;
    column = end;
    if (column == kLineClocks) {
      EndLine(tia);
      column = 0;
      row += kWidth;
      ++y;
    }
  }
}

// Draws what is due at `clock`.
ROLLOUTS_INLINE void DrawUntil(Console& c, I32 clock) {
  const Tia& tia = c.tia;
  if (clock > tia.last_shown) clock = tia.last_shown;
  if (clock > tia.drawn_until) DrawDue(c, clock);
}

}  // namespace rollouts::atari2600
