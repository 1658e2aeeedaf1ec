// SPDX-License-Identifier: Apache-2.0
// The CPU's instructions, executed one after the other. As in ale-py, an instruction first takes all
// of its cycles and then accesses memory, so that the TIA and the timer see the time of its end.
#pragma once

#include "rollouts/atari2600/bus.h"
#include "rollouts/atari2600/cpu_ops.h"

namespace rollouts::atari2600 {

// Results of addressing: an address, and the last byte on the data bus, which the CPU reads where
// it runs code among the chips' registers.
#define ROLLOUTS_ADDRESS_ZP address = b1, bus = b1, pc += 2
#define ROLLOUTS_ADDRESS_ZPX address = (b1 + r.x) & 0xff, bus = b1, pc += 2
#define ROLLOUTS_ADDRESS_ZPY address = (b1 + r.y) & 0xff, bus = b1, pc += 2
#define ROLLOUTS_ADDRESS_AB address = b1 | (b2 << 8), bus = b2, pc += 3
#define ROLLOUTS_ADDRESS_ABX address = (b1 | (b2 << 8)) + r.x, bus = b2, pc += 3
#define ROLLOUTS_ADDRESS_ABY address = (b1 | (b2 << 8)) + r.y, bus = b2, pc += 3
// the lower byte, then the higher one
#define ROLLOUTS_POINTER(at)                     \
  bus = ROLLOUTS_PEEK_LOW((at) & 0xff, b1);      \
  address = bus;                                 \
  bus = ROLLOUTS_PEEK_LOW(((at) + 1) & 0xff, bus); \
  address |= bus << 8
#define ROLLOUTS_ADDRESS_IZX ROLLOUTS_POINTER(b1 + r.x), pc += 2
#define ROLLOUTS_ADDRESS_IZY ROLLOUTS_POINTER(b1), address += r.y, pc += 2
#define ROLLOUTS_PEEK(at, noise) Read<kKind>(c, at, noise, cycles)
#define ROLLOUTS_PEEK_LOW(at, noise) ReadLow(c, at, noise, cycles)

// Adds the cycle that a read takes for an index that leaves the page.
#define ROLLOUTS_CROSS_ZP
#define ROLLOUTS_CROSS_ZPX
#define ROLLOUTS_CROSS_ZPY
#define ROLLOUTS_CROSS_AB
#define ROLLOUTS_CROSS_IZX
#define ROLLOUTS_CROSS_ABX cycles += (b1 + r.x) >> 8;
#define ROLLOUTS_CROSS_ABY cycles += (b1 + r.y) >> 8;
#define ROLLOUTS_CROSS_IZY cycles += (address & 0xff) < r.y;

#define ROLLOUTS_VALUE_IMM value = static_cast<U8>(b1), pc += 2;
#define ROLLOUTS_FETCH_ZP ROLLOUTS_PEEK_LOW(address, bus)
#define ROLLOUTS_FETCH_ZPX ROLLOUTS_FETCH_ZP
#define ROLLOUTS_FETCH_ZPY ROLLOUTS_FETCH_ZP
#define ROLLOUTS_FETCH_AB ROLLOUTS_PEEK(address & 0xffff, bus)
#define ROLLOUTS_FETCH_ABX ROLLOUTS_FETCH_AB
#define ROLLOUTS_FETCH_ABY ROLLOUTS_FETCH_AB
#define ROLLOUTS_FETCH_IZX ROLLOUTS_FETCH_AB
#define ROLLOUTS_FETCH_IZY ROLLOUTS_FETCH_AB
#define ROLLOUTS_VALUE(MODE) \
  ROLLOUTS_ADDRESS_##MODE;   \
  ROLLOUTS_CROSS_##MODE value = ROLLOUTS_FETCH_##MODE;
#define ROLLOUTS_VALUE_ZP ROLLOUTS_VALUE(ZP)
#define ROLLOUTS_VALUE_ZPX ROLLOUTS_VALUE(ZPX)
#define ROLLOUTS_VALUE_ZPY ROLLOUTS_VALUE(ZPY)
#define ROLLOUTS_VALUE_AB ROLLOUTS_VALUE(AB)
#define ROLLOUTS_VALUE_ABX ROLLOUTS_VALUE(ABX)
#define ROLLOUTS_VALUE_ABY ROLLOUTS_VALUE(ABY)
#define ROLLOUTS_VALUE_IZX ROLLOUTS_VALUE(IZX)
#define ROLLOUTS_VALUE_IZY ROLLOUTS_VALUE(IZY)
#define READ(CODE, MODE, NAME) \
  case CODE: {                 \
    ROLLOUTS_VALUE_##MODE;     \
    bus = value;               \
    Op##NAME(r, value);        \
    break;                     \
  }
#define ROLLOUTS_POKE_LOW(at, what) \
  if (WriteLow(c, at, bus = what, cycles)) end = 0;
#define ROLLOUTS_STORE_ZP(what) ROLLOUTS_POKE_LOW(address, what)
#define ROLLOUTS_STORE_ZPX ROLLOUTS_STORE_ZP
#define ROLLOUTS_STORE_ZPY ROLLOUTS_STORE_ZP
#define ROLLOUTS_STORE_AB(what) \
  if (Write<kKind>(c, address & 0xffff, bus = what, cycles)) end = 0;
#define ROLLOUTS_STORE_ABX ROLLOUTS_STORE_AB
#define ROLLOUTS_STORE_ABY ROLLOUTS_STORE_AB
#define ROLLOUTS_STORE_IZX ROLLOUTS_STORE_AB
#define ROLLOUTS_STORE_IZY ROLLOUTS_STORE_AB
#define WRITE(CODE, MODE, NAME)         \
  case CODE: {                          \
    ROLLOUTS_ADDRESS_##MODE;            \
    ROLLOUTS_STORE_##MODE(Op##NAME(r))  \
    break;                              \
  }
#define MODIFY(CODE, MODE, NAME)     \
  case CODE: {                       \
    ROLLOUTS_ADDRESS_##MODE;         \
    value = ROLLOUTS_FETCH_##MODE;   \
    value = Op##NAME(r, value);      \
    ROLLOUTS_STORE_##MODE(value)     \
    break;                           \
  }
#define ROLLOUTS_BRANCH(CODE, TAKEN, THEN)                  \
  case CODE: {                                              \
    pc += 2;                                                \
    bus = static_cast<U8>(b1);                              \
    if (TAKEN) {                                            \
      const I32 target = pc + static_cast<signed char>(b1); \
      const I32 taken = 1 + (((target ^ pc) >> 8) & 1);     \
      cycles += taken;                                      \
      pc = target & 0xffff;                                 \
      THEN                                                  \
    }                                                       \
    break;                                                  \
  }
#define BRANCH(CODE, TAKEN) ROLLOUTS_BRANCH(CODE, TAKEN, )
// Branches that end loops which only wait: where such a loop lies within one KiB of ROM, the bytes
// before the branch may be read through `code`, too.
#define WAITING_BRANCH(CODE, TAKEN)                                                              \
  ROLLOUTS_BRANCH(CODE, TAKEN, if (b1 >= 0xfb && code != bytes && (pc & 0x3ff) <= 0x400 - 5 &&   \
                                   !(HasRam(kKind) && (pc & 0xf00) == 0))                        \
                                   SkipLoop(c.riot, r, code, CODE == 0x10, taken, cycles, count, \
                                            end);)
#define PLAIN(CODE, STATEMENT) \
  case CODE: {                 \
    pc += 1;                   \
    bus = code[0];             \
    STATEMENT;                 \
    break;                     \
  }
#define ROLLOUTS_PUSH(what)                       \
  ROLLOUTS_POKE_LOW(r.sp, what)                   \
  --r.sp;
// A push before another push in the same cycle: first draws all that this write leaves unchanged.
#define ROLLOUTS_PUSH_FIRST(what)                                 \
  if (!(r.sp & 0x80)) DrawForWrite(c, r.sp & 0x3f, cycles);       \
  ROLLOUTS_PUSH(what)
// the byte at the old top is read first, after the opcode, and stays on the bus
#define ROLLOUTS_PULL(into)                                   \
  bus = ROLLOUTS_PEEK_LOW(r.sp, code[0]);                     \
  ++r.sp;                                                     \
  into = bus = ROLLOUTS_PEEK_LOW(r.sp, bus);

// Runs all rounds but the last of a loop that only waits, of one of two kinds: DEX or DEY with a
// branch, or LDA, LDX or LDY of the timer with a branch. `code` is the branch, which was taken;
// `while_positive`: the branch is BPL, else BNE; `taken`: the cycles that a taken branch adds.
ROLLOUTS_INLINE void SkipLoop(const Riot& riot, Cpu& r, const U8* code, bool while_positive,
                                 I32 taken, I32& cycles, I32& count, I32 end) {
  // rounds of two instructions; one round is left, so that registers are those of the last one
  const I32 most = (end - 2 - count) / 2;
  I32 rounds = 0;
  if (code[1] == 0xfd && (code[-1] == 0xca || code[-1] == 0x88)) {
    // DEX or DEY
    const bool is_x = code[-1] == 0xca;
    U8 counter = is_x ? r.x : r.y;
    // after a jump to the branch, the flags may not be those of the counter
    if (while_positive && counter > 0x7f) return;
    rounds = while_positive ? counter : counter - 1;
    if (rounds > most) rounds = most;
    if (rounds <= 0) return;
    counter = static_cast<U8>(counter - rounds);
    // without a reference to either one, because registers whose address is taken stay in memory
    if (is_x) {
      r.x = counter;
    } else {
      r.y = counter;
    }
    SetNZ(r, counter);
    cycles += rounds * (4 + taken);
  } else if (code[1] == 0xfb && code[-2] == 0x84 && code[-1] == 0x02 &&
             code[-3] >= 0xac && code[-3] <= 0xae) {
    // LDA, LDX or LDY of the timer, while it has not expired
    const I32 passed = cycles + 3 - riot.set_cycle;
    const I32 value = riot.timer - (passed >> riot.shift) - 1;
    if (value <= 0 || (while_positive && value > 0x7f)) return;
    const I32 round = 6 + taken;
    rounds = (((riot.timer - 1) << riot.shift) - passed + round - 1) / round;
    if (rounds > most) rounds = most;
    if (rounds <= 0) return;
    cycles += rounds * round;
  } else {
    return;
  }
  count += 2 * rounds;
}

// Runs until a frame ends, or `end` instructions are done.
template <CartridgeKind kKind>
inline ROLLOUTS_HD void Execute(Console& c, I32 end) {
  Cpu r = c.cpu;
  I32 pc = r.pc;
  I32 cycles = r.cycles;
  U8 bus = c.bus;
  for (I32 count = 0; count < end; ++count) {
    // three bytes, which an instruction never exceeds
    U8 bytes[3] = {};
    const U8* code;
    if constexpr (kKind != CartridgeKind::kFE && kKind != CartridgeKind::kDpc) {
      const bool direct = (pc & 0x1000) && (pc & 0x3ff) < 0x3fe &&
                          !((kKind == CartridgeKind::kF8SC || kKind == CartridgeKind::kF6SC) &&
                            (pc & 0xf00) == 0);
      code = direct ? c.cartridge.rom + c.cartridge.slices[(pc >> 10) & 3] + (pc & 0x3ff) : nullptr;
    } else {
      code = nullptr;
    }
    if (!code) {
      for (I32 i = 0; i < 3; ++i) {
        const I32 at = (pc + i) & 0xffff;
        // bytes after the instruction are neither read nor used
        if (i > 0 && i >= LengthOf(bytes[0])) break;
        // JSR's last byte is read after the pushes
        if (i == 2 && bytes[0] == 0x20) break;
        bytes[i] = bus = Read<kKind>(c, at, bus, i ? cycles + CyclesOf(bytes[0]) : cycles);
      }
      code = bytes;
    }
    const I32 b1 = code[1];
    const I32 b2 = code[2];
    I32 address;
    U8 value;
    cycles += CyclesOf(code[0]);
    switch (code[0]) {
#include "rollouts/atari2600/opcodes.inc"

      // the value written depends on the address
      case 0x93:  // SHA
        ROLLOUTS_ADDRESS_IZY;
        ROLLOUTS_STORE_IZY(static_cast<U8>(r.a & r.x & ((address >> 8) + 1)))
        break;
      case 0x9f:  // SHA
        ROLLOUTS_ADDRESS_ABY;
        ROLLOUTS_STORE_ABY(static_cast<U8>(r.a & r.x & ((address >> 8) + 1)))
        break;
      case 0x9e:  // SHX
        ROLLOUTS_ADDRESS_ABY;
        ROLLOUTS_STORE_ABY(static_cast<U8>(r.x & ((address >> 8) + 1)))
        break;
      case 0x9c:  // SHY
        ROLLOUTS_ADDRESS_ABX;
        ROLLOUTS_STORE_ABX(static_cast<U8>(r.y & ((address >> 8) + 1)))
        break;
      case 0x9b:  // SHS
        ROLLOUTS_ADDRESS_ABY;
        r.sp = r.a & r.x;
        ROLLOUTS_STORE_ABY(static_cast<U8>(r.sp & ((address >> 8) + 1)))
        break;

      case 0x48:  // PHA
        pc += 1;
        ROLLOUTS_PUSH(r.a)
        break;
      case 0x08:  // PHP
        pc += 1;
        ROLLOUTS_PUSH(PackFlags(r))
        break;
      case 0x68:  // PLA
        pc += 1;
        ROLLOUTS_PULL(r.a)
        SetNZ(r, r.a);
        break;
      case 0x28:  // PLP
        pc += 1;
        ROLLOUTS_PULL(value)
        UnpackFlags(r, value);
        break;
      case 0x4c:  // JMP
        pc = b1 | (b2 << 8);
        bus = static_cast<U8>(b2);
        break;
      case 0x6c:  // JMP (address): the pointer does not leave its page
        address = b1 | (b2 << 8);
        bus = static_cast<U8>(b2);
        value = ROLLOUTS_PEEK(address, bus);
        address = (address & 0xff00) | ((address + 1) & 0xff);
        pc = value | ((bus = ROLLOUTS_PEEK(address, value)) << 8);
        break;
      case 0x20: {  // JSR
        pc += 2;
        ROLLOUTS_PUSH_FIRST(static_cast<U8>(pc >> 8))
        // WSYNC stops the CPU at the access before it, if that was a read
        const I32 before = cycles;
        ROLLOUTS_PUSH(static_cast<U8>(pc))
        cycles = before;
        bus = code == bytes ? Read<kKind>(c, pc & 0xffff, bus, cycles) : static_cast<U8>(b2);
        pc = b1 | (bus << 8);
        break;
      }
      case 0x60:  // RTS
        ROLLOUTS_PULL(value)
        ++r.sp;
        address = value | (ROLLOUTS_PEEK_LOW(r.sp, value) << 8);
        // the last byte of the JSR is read again
        bus = ROLLOUTS_PEEK(address, static_cast<U8>(address >> 8));
        pc = address + 1;
        break;
      case 0x40:  // RTI
        ROLLOUTS_PULL(value)
        UnpackFlags(r, value);
        ++r.sp;
        value = ROLLOUTS_PEEK_LOW(r.sp, value);
        ++r.sp;
        pc = value | ((bus = ROLLOUTS_PEEK_LOW(r.sp, value)) << 8);
        break;
      case 0x00: {  // BRK
        pc = (pc + 2) & 0xffff;
        ROLLOUTS_PUSH_FIRST(static_cast<U8>(pc >> 8))
        const I32 before = cycles;
        ROLLOUTS_PUSH_FIRST(static_cast<U8>(pc))
        cycles = before;
        ROLLOUTS_PUSH(PackFlags(r))
        cycles = before;
        r.interrupt = 1;
        value = ROLLOUTS_PEEK(0xfffe, U8{0});
        pc = value | ((bus = ROLLOUTS_PEEK(0xffff, value)) << 8);
        break;
      }
      default:  // a 6507 stops here, until it is reset
        c.jammed = 1;
        end = 0;
        break;
    }
    pc &= 0xffff;
  }
  r.pc = static_cast<U16>(pc);
  r.cycles = cycles;
  c.cpu = r;
  c.bus = bus;
}

#undef READ
#undef WRITE
#undef MODIFY
#undef BRANCH
#undef WAITING_BRANCH
#undef PLAIN

}  // namespace rollouts::atari2600
