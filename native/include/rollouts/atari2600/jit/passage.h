// SPDX-License-Identifier: Apache-2.0
// Data that compiled code and its caller share: registers, fields, and the functions that the code
// calls.
#pragma once

#include <cstddef>

#include "rollouts/atari2600/decoded_cpu.h"
#include "rollouts/atari2600/jit/assembler.h"

namespace rollouts::atari2600::jit {

// Registers that hold those of the 6507. Functions preserve the first six, thunks the last two.
inline constexpr Register kA = kBx;
inline constexpr Register kX = kBp;
inline constexpr Register kY = kR12;
inline constexpr Register kRam = kR13;     // address of Riot::ram
inline constexpr Register kCycles = kR14;  // at the end of the block
inline constexpr Register kResult = kR15;  // bits 0..7 are 0: flag Z; bit 7 or 15: flag N
inline constexpr I32 kNegativeBits = 0x8080;
inline constexpr Register kCarryFlag = kR10;
inline constexpr Register kLeft = kR11;    // instructions that may follow the block

inline constexpr std::size_t kRamOffset = offsetof(Console, riot) + offsetof(Riot, ram);

// A field of the console.
inline constexpr Place Field(std::size_t offset) {
  return {kRam, static_cast<I32>(offset) - static_cast<I32>(kRamOffset)};
}
#define ROLLOUTS_FIELD(PART, TYPE, NAME) Field(offsetof(Console, PART) + offsetof(TYPE, NAME))
inline constexpr Place kStackPointer = ROLLOUTS_FIELD(cpu, Cpu, sp);
inline constexpr Place kOverflowFlag = ROLLOUTS_FIELD(cpu, Cpu, overflow);
inline constexpr Place kDecimalFlag = ROLLOUTS_FIELD(cpu, Cpu, decimal);
inline constexpr Place kInterruptFlag = ROLLOUTS_FIELD(cpu, Cpu, interrupt);
inline constexpr Place kTouched = ROLLOUTS_FIELD(tia, Tia, touched);
inline constexpr Place kTouchedRegister = ROLLOUTS_FIELD(tia, Tia, touched_register);
inline constexpr Place kAlarm = ROLLOUTS_FIELD(tia, Tia, alarm);
inline constexpr Place kFrameDone = ROLLOUTS_FIELD(tia, Tia, frame_done);
inline constexpr Place kSlices = ROLLOUTS_FIELD(cartridge, Cartridge, slices);

// The state when compiled code is entered and left.
struct Passage {
  Console* console;
  const void* target;
  I32 left;
  I32 line_start;  // cycle at which the frame's first line began
  I32 origin;      // where the page appears to the CPU
  U32 at;          // the next record, or an address with kIsAddress
};
inline constexpr U32 kIsAddress = 0x80000000u;

// Places on the stack of compiled code: the passage's address first, then values that are read
// often.
inline constexpr Place kPassage{kSp, 0};
inline constexpr Place kLineStart{kSp, 8};
inline constexpr Place kOrigin{kSp, 12};
inline constexpr I32 kStackBytes = 24;

// A record in the form that dynamic jumps need.
struct Target {
  U32 code;    // offset of its instructions
  U16 rest;    // as in Instruction
  U16 cycles;  // cycles of those instructions
};

// Writes to one register of the TIA, as WriteTia does.
template <I32 kRegister>
inline void WriteOne(Console& c, U8 value, I32 cycles) {
  const I32 clock = cycles * 3;
  BeginAccess(c.tia, kRegister, clock);
  WriteRegister(c, kRegister, value, cycles, clock);
}

using WriteFunction = void (*)(Console&, U8, I32);

template <I32... kRegisters>
inline WriteFunction WriteOf(I32 reg) {
  WriteFunction found = nullptr;
  ((reg == kRegisters ? void(found = WriteOne<kRegisters>) : void()), ...);
  return found;
}

// Null for a register without effect, and for WSYNC.
inline WriteFunction WriteOfRegister(I32 reg) {
  return WriteOf<0x00, 0x01, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
                 0x10, 0x11, 0x12, 0x13, 0x14, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f, 0x20, 0x21, 0x22, 0x23,
                 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b, 0x2c>(reg);
}

using AccessFunction = void (*)(Console&, I32 address, U8 value, I32& cycles);

template <CartridgeKind kKind>
inline void WriteAnywhere(Console& c, I32 address, U8 value, I32& cycles) {
  Write<kKind>(c, address & 0xffff, value, cycles);
}
inline U8 ReadAnywhere(Console& c, I32 address, U8 bus, I32 cycles) {
  return ReadCold(c, address & 0xffff, bus, cycles);
}
// The reads of PLA and PLP, where the stack is not in RAM.
inline U8 PullByteOf(Console& c, I32, U8 opcode, I32 cycles) {
  const U8 bus = ReadLow(c, c.cpu.sp, opcode, cycles);
  ++c.cpu.sp;
  return ReadLow(c, c.cpu.sp, bus, cycles);
}
inline U8 ReadOfTia(Console& c, I32 address, U8 bus, I32 cycles) {
  return ReadTia(c, address, bus, cycles);
}

}  // namespace rollouts::atari2600::jit
