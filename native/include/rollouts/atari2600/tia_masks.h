// SPDX-License-Identifier: Apache-2.0
// The pixels of the TIA's objects among a line's 160, and collisions of objects.
#pragma once

#include "rollouts/atari2600/console.h"

namespace rollouts::atari2600 {

// Places of the copies of a player or missile, by NUSIZ: 8 bits, for 16 pixels each, from the first
// copy on.
inline ROLLOUTS_HD U32 CopiesOf(U8 nusiz) {
  static constexpr U8 kCopies[8] = {0x01, 0x03, 0x05, 0x07, 0x11, 0x01, 0x15, 0x01};
  return kCopies[nusiz & 7];
}

inline ROLLOUTS_HD U64 LowBits(I32 count) {
  return count >= 64 ? ~U64{0} : (U64{1} << count) - 1;
}

// Adds a pattern of up to 33 pixels, with its first one in bit 0, at a position; the part after the
// line's end continues at the line's start.
inline ROLLOUTS_HD void AddPattern(Mask& mask, U64 pattern, I32 position) {
  const I32 bit = position & 63;
  const U64 low = pattern << bit;
  const U64 high = (pattern >> 1) >> (63 - bit);
  switch (position >> 6) {
    case 0:
      mask.words[0] |= low;
      mask.words[1] |= high;
      break;
    case 1:
      mask.words[1] |= low;
      mask.words[2] |= high;
      break;
    default:
      // the third word ends at pixel 160
      mask.words[2] |= low & 0xffffffffu;
      mask.words[0] |= low >> 32 | high << 32;
      break;
  }
}

// Tables for every byte: its bits reversed, and each of its bits four times.
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

// Doubles every bit of a byte.
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
    // wide players begin a pixel late
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
  // half a line: half of PF0, PF1 from its bit 7, PF2 from its bit 0; each bit is four pixels
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

// True where the object is switched on, at any position.
inline ROLLOUTS_HD bool ShowsPlayer(const Tia& tia, I32 i) {
  return tia.vdelp[i] ? tia.old_grp[i] : tia.grp[i];
}
inline ROLLOUTS_HD bool ShowsMissile(const Tia& tia, I32 i) {
  return tia.enam[i] && !tia.resmp[i];
}
inline ROLLOUTS_HD bool ShowsBall(const Tia& tia) {
  return tia.vdelbl ? tia.old_enabl : tia.enabl;
}
inline ROLLOUTS_HD bool ShowsObject(const Tia& tia) {
  return ShowsPlayer(tia, 0) || ShowsPlayer(tia, 1) || ShowsMissile(tia, 0) ||
         ShowsMissile(tia, 1) || ShowsBall(tia);
}

// Tells if the halves of the playfield have the players' colours. A playfield without objects has
// them even if its priority is above that of objects.
inline ROLLOUTS_HD bool HasScore(const Tia& tia) {
  if (!(tia.ctrlpf & 2)) return false;
  return !(tia.ctrlpf & 4) || !ShowsObject(tia);
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

// Records collisions. `m` has 64 pixels of each object.
inline ROLLOUTS_NOINLINE void Meet(Tia& tia, const U64* m) {
  struct Pair {
    U8 a;
    U8 b;
    U8 bit;  // a bit of Tia::collisions
  };
  static constexpr Pair kPairs[15] = {
      {kM0, kP1, 1},        {kM0, kP0, 0},          {kM1, kP0, 3},        {kM1, kP1, 2},
      {kP0, kPlayfield, 5}, {kP0, kBall, 4},        {kP1, kPlayfield, 7}, {kP1, kBall, 6},
      {kM0, kPlayfield, 9}, {kM0, kBall, 8},        {kM1, kPlayfield, 11}, {kM1, kBall, 10},
      {kBall, kPlayfield, 13}, {kP0, kP1, 15},      {kM0, kM1, 14}};
  for (const Pair& pair : kPairs) {
    if (m[pair.a] & m[pair.b]) tia.collisions |= static_cast<U16>(1u << pair.bit);
  }
}

}  // namespace rollouts::atari2600
