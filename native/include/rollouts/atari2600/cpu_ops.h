// SPDX-License-Identifier: Apache-2.0
// The effect of a 6507's instructions on its registers. Sources: MOS MCS6500 data sheet; "Extra
// Instructions of the 65XX Series CPU" by Adam Vardy; ale-py for decimal results that no data sheet
// defines.
#pragma once

#include "rollouts/atari2600/console.h"

namespace rollouts::atari2600 {

// Cycles of an instruction, without those of page crossings and taken branches.
inline ROLLOUTS_HD I32 CyclesOf(U8 opcode) {
  static constexpr U8 kCycles[256] = {
    7, 6, 2, 8, 3, 3, 5, 5, 3, 2, 2, 2, 4, 4, 6, 6,
    2, 5, 2, 8, 4, 4, 6, 6, 2, 4, 2, 7, 4, 4, 7, 7,
    6, 6, 2, 8, 3, 3, 5, 5, 4, 2, 2, 2, 4, 4, 6, 6,
    2, 5, 2, 8, 4, 4, 6, 6, 2, 4, 2, 7, 4, 4, 7, 7,
    6, 6, 2, 8, 3, 3, 5, 5, 3, 2, 2, 2, 3, 4, 6, 6,
    2, 5, 2, 8, 4, 4, 6, 6, 2, 4, 2, 7, 4, 4, 7, 7,
    6, 6, 2, 8, 3, 3, 5, 5, 4, 2, 2, 2, 5, 4, 6, 6,
    2, 5, 2, 8, 4, 4, 6, 6, 2, 4, 2, 7, 4, 4, 7, 7,
    2, 6, 2, 6, 3, 3, 3, 3, 2, 2, 2, 2, 4, 4, 4, 4,
    2, 6, 2, 6, 4, 4, 4, 4, 2, 5, 2, 5, 5, 5, 5, 5,
    2, 6, 2, 6, 3, 3, 3, 4, 2, 2, 2, 2, 4, 4, 4, 4,
    2, 5, 2, 5, 4, 4, 4, 4, 2, 4, 2, 4, 4, 4, 4, 4,
    2, 6, 2, 8, 3, 3, 5, 5, 2, 2, 2, 2, 4, 4, 6, 6,
    2, 5, 2, 8, 4, 4, 6, 6, 2, 4, 2, 7, 4, 4, 7, 7,
    2, 6, 2, 8, 3, 3, 5, 5, 2, 2, 2, 2, 4, 4, 6, 6,
    2, 5, 2, 8, 4, 4, 6, 6, 2, 4, 2, 7, 4, 4, 7, 7};
  return kCycles[opcode];
}

// Bytes of an instruction; those of BRK include the byte that it skips.
inline ROLLOUTS_HD I32 LengthOf(U8 opcode) {
  if (opcode == 0x20) return 3;
  if (opcode == 0x40 || opcode == 0x60) return 1;
  // an instruction that stops the CPU reads no more bytes
  if ((opcode & 0x9f) == 0x02) return 1;
  switch (opcode & 0x1f) {
    case 0x08:
    case 0x0a:
    case 0x12:
    case 0x18:
    case 0x1a: return 1;
    case 0x0c:
    case 0x0d:
    case 0x0e:
    case 0x0f:
    case 0x19:
    case 0x1b:
    case 0x1c:
    case 0x1d:
    case 0x1e:
    case 0x1f: return 3;
    default: return 2;
  }
}

ROLLOUTS_INLINE void SetNZ(Cpu& r, U32 value) { r.n = r.z = static_cast<U8>(value); }

inline ROLLOUTS_HD I32 FromBcd(I32 v) { return (v >> 4) * 10 + (v & 15); }
inline ROLLOUTS_HD I32 ToBcd(I32 v) {
  // bytes that are not two decimal digits can make v negative; ale-py then reads before its table
  if (v < 0) return FromBcd(v & 0xff);
  v &= 0xff;
  return ((v % 100) / 10 << 4) | (v % 10);
}

// The result of a decimal sum: the accumulator, carry in bit 8 and overflow in bit 9.
inline ROLLOUTS_NOINLINE U32 AddDecimal(U32 a, U32 v, U32 carry) {
  const I32 sum = FromBcd(static_cast<I32>(a)) + FromBcd(static_cast<I32>(v)) +
                  static_cast<I32>(carry);
  const U32 result = static_cast<U32>(ToBcd(sum)) & 0xff;
  return result | (sum > 99 ? 0x100u : 0u) | (((a ^ result) & (v ^ result)) >> 7) << 9;
}
inline ROLLOUTS_NOINLINE U32 SubtractDecimal(U32 a, U32 v, U32 borrow) {
  I32 difference = FromBcd(static_cast<I32>(a)) - FromBcd(static_cast<I32>(v)) -
                   static_cast<I32>(borrow);
  if (difference < 0) difference += 100;
  const U32 result = static_cast<U32>(ToBcd(difference)) & 0xff;
  return result | (a >= v + borrow ? 0x100u : 0u) | (((a ^ result) & (v ^ result)) >> 7) << 9;
}

// Takes a decimal sum's result by value: registers whose address is taken stay in memory.
ROLLOUTS_INLINE void TakeDecimal(Cpu& r, U32 result) {
  r.a = static_cast<U8>(result);
  r.carry = (result >> 8) & 1;
  r.overflow = (result >> 9) & 1;
}

ROLLOUTS_INLINE void Adc(Cpu& r, U8 v) {
  const U8 old = r.a;
  if (!r.decimal) {
    const U32 sum = U32{old} + v + r.carry;
    r.carry = sum > 0xff;
    r.a = static_cast<U8>(sum);
    r.overflow = ((old ^ r.a) & (v ^ r.a)) >> 7;
  } else {
    TakeDecimal(r, AddDecimal(old, v, r.carry));
  }
  SetNZ(r, r.a);
}

ROLLOUTS_INLINE void Sbc(Cpu& r, U8 v) {
  const U8 old = r.a;
  const U32 borrow = 1u - r.carry;
  if (!r.decimal) {
    const I32 difference = old - v - static_cast<I32>(borrow);
    r.carry = difference >= 0;
    r.a = static_cast<U8>(difference);
    r.overflow = ((old ^ v) & (old ^ r.a)) >> 7;
  } else {
    TakeDecimal(r, SubtractDecimal(old, v, borrow));
  }
  SetNZ(r, r.a);
}

ROLLOUTS_INLINE void Compare(Cpu& r, U8 left, U8 v) {
  r.carry = left >= v;
  SetNZ(r, static_cast<U8>(left - v));
}

ROLLOUTS_INLINE U8 Asl(Cpu& r, U8 v) {
  r.carry = v >> 7;
  SetNZ(r, v = static_cast<U8>(v << 1));
  return v;
}
ROLLOUTS_INLINE U8 Lsr(Cpu& r, U8 v) {
  r.carry = v & 1;
  SetNZ(r, v >>= 1);
  return v;
}
ROLLOUTS_INLINE U8 Rol(Cpu& r, U8 v) {
  const U8 out = v >> 7;
  SetNZ(r, v = static_cast<U8>((v << 1) | r.carry));
  r.carry = out;
  return v;
}
ROLLOUTS_INLINE U8 Ror(Cpu& r, U8 v) {
  const U8 out = v & 1;
  SetNZ(r, v = static_cast<U8>((v >> 1) | (r.carry << 7)));
  r.carry = out;
  return v;
}

// Instructions that read a value.
ROLLOUTS_INLINE void OpORA(Cpu& r, U8 v) { SetNZ(r, r.a |= v); }
ROLLOUTS_INLINE void OpAND(Cpu& r, U8 v) { SetNZ(r, r.a &= v); }
ROLLOUTS_INLINE void OpEOR(Cpu& r, U8 v) { SetNZ(r, r.a ^= v); }
ROLLOUTS_INLINE void OpADC(Cpu& r, U8 v) { Adc(r, v); }
ROLLOUTS_INLINE void OpSBC(Cpu& r, U8 v) { Sbc(r, v); }
ROLLOUTS_INLINE void OpLDA(Cpu& r, U8 v) { SetNZ(r, r.a = v); }
ROLLOUTS_INLINE void OpLDX(Cpu& r, U8 v) { SetNZ(r, r.x = v); }
ROLLOUTS_INLINE void OpLDY(Cpu& r, U8 v) { SetNZ(r, r.y = v); }
ROLLOUTS_INLINE void OpLAX(Cpu& r, U8 v) { SetNZ(r, r.a = r.x = v); }
ROLLOUTS_INLINE void OpLXA(Cpu& r, U8 v) { SetNZ(r, r.a = r.x = (r.a | 0xee) & v); }
ROLLOUTS_INLINE void OpANE(Cpu& r, U8 v) { SetNZ(r, r.a = (r.a | 0xee) & r.x & v); }
ROLLOUTS_INLINE void OpLAS(Cpu& r, U8 v) { SetNZ(r, r.a = r.x = r.sp &= v); }
ROLLOUTS_INLINE void OpCMP(Cpu& r, U8 v) { Compare(r, r.a, v); }
ROLLOUTS_INLINE void OpCPX(Cpu& r, U8 v) { Compare(r, r.x, v); }
ROLLOUTS_INLINE void OpCPY(Cpu& r, U8 v) { Compare(r, r.y, v); }
ROLLOUTS_INLINE void OpNOP(Cpu&, U8) {}
ROLLOUTS_INLINE void OpBIT(Cpu& r, U8 v) {
  r.n = v;
  r.overflow = (v >> 6) & 1;
  r.z = r.a & v;
}
ROLLOUTS_INLINE void OpANC(Cpu& r, U8 v) {
  SetNZ(r, r.a &= v);
  r.carry = r.a >> 7;
}
ROLLOUTS_INLINE void OpALR(Cpu& r, U8 v) { r.a = Lsr(r, r.a & v); }
ROLLOUTS_INLINE void OpARR(Cpu& r, U8 v) {
  v &= r.a;
  r.a = static_cast<U8>((v >> 1) | (r.carry << 7));
  SetNZ(r, r.a);
  r.overflow = ((r.a >> 6) ^ (r.a >> 5)) & 1;
  if (!r.decimal) {
    r.carry = (r.a >> 6) & 1;
    return;
  }
  // the digits above 9 are corrected, but not the flags
  r.carry = (v & 0xf0) + (v & 0x10) > 0x50;
  if ((v & 0xf) + (v & 1) > 5) r.a = static_cast<U8>((r.a & 0xf0) | ((r.a + 6) & 0xf));
  if (r.carry) r.a = static_cast<U8>(r.a + 0x60);
}
ROLLOUTS_INLINE void OpSBX(Cpu& r, U8 v) {
  const I32 difference = (r.a & r.x) - v;
  r.carry = difference >= 0;
  SetNZ(r, r.x = static_cast<U8>(difference));
}

// Instructions that write a value.
ROLLOUTS_INLINE U8 OpSTA(const Cpu& r) { return r.a; }
ROLLOUTS_INLINE U8 OpSTX(const Cpu& r) { return r.x; }
ROLLOUTS_INLINE U8 OpSTY(const Cpu& r) { return r.y; }
ROLLOUTS_INLINE U8 OpSAX(const Cpu& r) { return r.a & r.x; }

// Instructions that read, change and write a value.
ROLLOUTS_INLINE U8 OpASL(Cpu& r, U8 v) { return Asl(r, v); }
ROLLOUTS_INLINE U8 OpLSR(Cpu& r, U8 v) { return Lsr(r, v); }
ROLLOUTS_INLINE U8 OpROL(Cpu& r, U8 v) { return Rol(r, v); }
ROLLOUTS_INLINE U8 OpROR(Cpu& r, U8 v) { return Ror(r, v); }
ROLLOUTS_INLINE U8 OpINC(Cpu& r, U8 v) {
  SetNZ(r, ++v);
  return v;
}
ROLLOUTS_INLINE U8 OpDEC(Cpu& r, U8 v) {
  SetNZ(r, --v);
  return v;
}
ROLLOUTS_INLINE U8 OpSLO(Cpu& r, U8 v) {
  v = Asl(r, v);
  OpORA(r, v);
  return v;
}
ROLLOUTS_INLINE U8 OpRLA(Cpu& r, U8 v) {
  v = Rol(r, v);
  OpAND(r, v);
  return v;
}
ROLLOUTS_INLINE U8 OpSRE(Cpu& r, U8 v) {
  v = Lsr(r, v);
  OpEOR(r, v);
  return v;
}
ROLLOUTS_INLINE U8 OpRRA(Cpu& r, U8 v) {
  v = Ror(r, v);
  Adc(r, v);
  return v;
}
ROLLOUTS_INLINE U8 OpDCP(Cpu& r, U8 v) {
  Compare(r, r.a, --v);
  return v;
}
ROLLOUTS_INLINE U8 OpISB(Cpu& r, U8 v) {
  Sbc(r, ++v);
  return v;
}

ROLLOUTS_INLINE U8 PackFlags(const Cpu& r) {
  return static_cast<U8>((r.n & 0x80) | (r.overflow << 6) | 0x30 | (r.decimal << 3) |
                         (r.interrupt << 2) | ((r.z == 0) << 1) | r.carry);
}
ROLLOUTS_INLINE void UnpackFlags(Cpu& r, U8 flags) {
  r.n = flags & 0x80;
  r.overflow = (flags >> 6) & 1;
  r.decimal = (flags >> 3) & 1;
  r.interrupt = (flags >> 2) & 1;
  r.z = (flags & 2) ? 0 : 1;
  r.carry = flags & 1;
}

}  // namespace rollouts::atari2600
