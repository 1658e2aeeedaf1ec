// SPDX-License-Identifier: Apache-2.0
// Runs the instructions of decoded.h, as Execute runs the ROM. For hosts only: their compilers
// support labels as values. Execute runs instructions that are not decoded.
#pragma once

#include "rollouts/atari2600/decoded.h"

namespace rollouts::atari2600 {

template <CartridgeKind kKind>
inline I32 PageOf(const Cartridge& cartridge, I32 pc) {
  if constexpr (kKind == CartridgeKind::kPlain) return 0;
  return static_cast<I32>(cartridge.slices[(pc >> 10) & 3]) / PageSize(kKind);
}

// Reads an address that is not hot.
ROLLOUTS_INLINE U8 ReadCold(Console& c, I32 address, U8 bus, I32 cycles) {
  const Cartridge& cartridge = c.cartridge;
  if (address & 0x1000) {
    return cartridge.rom[cartridge.slices[(address >> 10) & 3] + static_cast<U32>(address & 0x3ff)];
  }
  return ReadChips(c, address, bus, cycles);
}

// Continues with the instruction at `op`.
#define GO_ON                  \
  {                            \
    cycles += op->cycles;      \
    goto* kLabels[op->handler]; \
  }
#define NEXT(LENGTH) \
  {                  \
    op += LENGTH;    \
    GO_ON            \
  }
// The same after a write that may have ended the frame, and where a block begins.
#define NEXT_OF_FRAME(LENGTH)           \
  {                                     \
    op += LENGTH;                       \
    if (c.tia.frame_done) goto EndFrame; \
    GO_ON                               \
  }
#define ENTER                    \
  {                              \
    left -= op->rest;            \
    if (left < 0) goto LastBlock; \
    GO_ON                        \
  }

#define READS(NAME)                                                                      \
  NAME##Value : Op##NAME(r, static_cast<U8>(op->operand));                               \
  NEXT(2)                                                                                \
  NAME##Constant : Op##NAME(r, static_cast<U8>(op->operand));                            \
  NEXT(3)                                                                                \
  NAME##Ram : Op##NAME(r, c.riot.ram[op->operand]);                                      \
  NEXT(2)                                                                                \
  NAME##LowX : address = (op->operand + r.x) & 0xff;                                     \
  goto NAME##Low;                                                                        \
  NAME##LowY : address = (op->operand + r.y) & 0xff;                                     \
  NAME##Low : value = ReadLow(c, address, static_cast<U8>(op->operand), cycles);         \
  Op##NAME(r, value);                                                                    \
  NEXT(2)                                                                                \
  NAME##Tia : Op##NAME(r, ReadTia(c, op->operand, static_cast<U8>(op->operand), cycles)); \
  NEXT(2)                                                                                \
  NAME##Bus : value = Read<kKind>(c, op->operand, static_cast<U8>(op->operand >> 8), cycles); \
  Op##NAME(r, value);                                                                    \
  NEXT(3)                                                                                \
  NAME##FarX : address = r.x;                                                            \
  goto NAME##Far;                                                                        \
  NAME##FarY : address = r.y;                                                            \
  NAME##Far : crossed = ((op->operand & 0xff) + address) >> 8;                           \
  address = (op->operand + address) & 0xffff;                                            \
  if ((address & 0x1000) && IsHot(kKind, address)) goto Step;                            \
  cycles += crossed;                                                                     \
  value = ReadCold(c, address, static_cast<U8>(op->operand >> 8), cycles);               \
  Op##NAME(r, value);                                                                    \
  NEXT(3)                                                                                \
  NAME##PointerX : address = (op->operand + r.x) & 0xff;                                 \
  if (address < 0x80 || address == 0xff) goto Step;                                      \
  bus = c.riot.ram[(address + 1) & 0x7f];                                                \
  address = c.riot.ram[address & 0x7f] | (bus << 8);                                     \
  if ((address & 0x1000) && IsHot(kKind, address)) goto Step;                            \
  value = ReadCold(c, address, bus, cycles);                                             \
  Op##NAME(r, value);                                                                    \
  NEXT(2)                                                                                \
  NAME##Pointer : POINT                                                                  \
  cycles += (address & 0xff) < r.y;                                                      \
  value = ReadCold(c, address, bus, cycles);                                             \
  Op##NAME(r, value);                                                                    \
  NEXT(2)

// Reads a pointer in RAM and adds Y.
#define POINT                                             \
  bus = c.riot.ram[(op->operand + 1) & 0x7f];             \
  address = ((c.riot.ram[op->operand & 0x7f] | (bus << 8)) + r.y) & 0xffff; \
  if ((address & 0x1000) && IsHot(kKind, address)) goto Step;
// Passes a copy of the time by reference, so that `cycles` can stay in a register.
#define POKE(WRITE)     \
  {                     \
    I32 now = cycles;   \
    WRITE;              \
    cycles = now;       \
  }
#define WRITES(NAME)                                                                       \
  NAME##Ram : c.riot.ram[op->operand] = Op##NAME(r);                                       \
  NEXT(2)                                                                                  \
  NAME##Tia : POKE(WriteTia(c, op->operand, Op##NAME(r), now)) NEXT_OF_FRAME(2)            \
  NAME##LowX : address = (op->operand + r.x) & 0xff;                                       \
  POKE(WriteLow(c, address, Op##NAME(r), now)) NEXT_OF_FRAME(2)                            \
  NAME##LowY : address = (op->operand + r.y) & 0xff;                                       \
  POKE(WriteLow(c, address, Op##NAME(r), now)) NEXT_OF_FRAME(2)                            \
  NAME##Bus : POKE(Write<kKind>(c, op->operand, Op##NAME(r), now)) NEXT_OF_FRAME(3)        \
  NAME##FarX : address = (op->operand + r.x) & 0xffff;                                     \
  goto NAME##Far;                                                                          \
  NAME##FarY : address = (op->operand + r.y) & 0xffff;                                     \
  NAME##Far : if ((address & 0x1000) && IsHot(kKind, address)) goto Step;                  \
  POKE(Write<kKind>(c, address, Op##NAME(r), now)) NEXT_OF_FRAME(3)                        \
  NAME##Pointer : POINT POKE(Write<kKind>(c, address, Op##NAME(r), now)) NEXT_OF_FRAME(2)
#define MODIFIES(NAME)                                             \
  NAME##Ram : address = op->operand;                               \
  c.riot.ram[address] = Op##NAME(r, c.riot.ram[address]);          \
  NEXT(2)                                                          \
  NAME##RamX : address = (op->operand + r.x) & 0xff;               \
  if (address < 0x80) goto Step;                                   \
  address &= 0x7f;                                                 \
  c.riot.ram[address] = Op##NAME(r, c.riot.ram[address]);          \
  NEXT(2)
#define WAIT(IS_TAKEN, WHILE_POSITIVE)                                                    \
  if (!(IS_TAKEN)) {                                                                      \
    op += 2;                                                                              \
    ENTER                                                                                 \
  }                                                                                       \
  {                                                                                       \
    const I32 taken = 1 + (op->operand >> 15);                                            \
    cycles += taken;                                                                      \
    I32 count = 0;                                                                        \
    SkipLoop(c.riot, r, c.cartridge.rom + (op->operand & 0x7fff), WHILE_POSITIVE, taken, cycles, \
             count, left);                                                                \
    left -= count;                                                                        \
    op += op->jump;                                                                       \
    ENTER                                                                                 \
  }

// Replaces Execute for a ROM that was decoded into `records`.
template <CartridgeKind kKind>
inline void ExecuteDecoded(Console& c, const Decoded& rom, I32 end) {
  const Instruction* const records = rom.records;
  static const void* const kLabels[] = {
#define HANDLER(NAME) &&NAME,
#include "rollouts/atari2600/handlers.inc"
#undef HANDLER
  };
  Cpu r = c.cpu;
  I32 cycles = r.cycles;
  I32 pc = r.pc;
  I32 left = end;
  const Instruction* first = records;  // the page's
  const Instruction* op = records;
  I32 origin = 0;  // where the page appears to the CPU
  I32 address;
  I32 crossed;
  U8 bus;
  U8 value;

Find:
  pc &= 0xffff;
  if (!(pc & 0x1000)) {
    if (left == 0) goto Leap;
    --left;
    goto StepOne;
  }
  origin = pc & ~(PageSize(kKind) - 1);
  first = records + PageOf<kKind>(c.cartridge, pc) * PageSize(kKind);
  op = first + (pc - origin);
  ENTER

Step:
  // only the part of its block before `op` was done
  left += op->rest - 1;
  cycles -= op->cycles;
  pc = (origin + static_cast<I32>(op - first)) & 0xffff;
StepOne:
  r.pc = static_cast<U16>(pc);
  r.cycles = cycles;
  c.cpu = r;
  Execute<kKind>(c, 1);
  if (c.tia.frame_done || c.jammed) return;
  r = c.cpu;
  cycles = r.cycles;
  pc = r.pc;
  goto Find;

LastBlock:
  left += op->rest;
EndFrame:
  pc = (origin + static_cast<I32>(op - first)) & 0xffff;
Leap:
  r.pc = static_cast<U16>(pc);
  r.cycles = cycles;
  c.cpu = r;
  if (!c.tia.frame_done) Execute<kKind>(c, left);
  return;

Wsync : {
  // WSYNC is a write too, and ends a frame that is too long
  BeginAccess(c.tia, kWsyncRegister, cycles * 3);
  const I32 passed = cycles - c.tia.frame_start / 3;
  const I32 rest = passed % kLineCycles;
  if (rest) cycles += kLineCycles - rest;
  NEXT_OF_FRAME(2)
}

Jump:
  pc = op->operand;
  goto Find;
JumpIndirect:
  // a pointer in RAM, which does not leave its page
  address = op->operand;
  if (address < 0x80 || address >= 0xff) goto Step;
  pc = c.riot.ram[address & 0x7f] | (c.riot.ram[(address + 1) & 0x7f] << 8);
  // only Execute tracks the bus
  if (!(pc & 0x1000)) goto Step;
  goto Find;
Call:
  if (r.sp < 0x81) goto Step;
  pc = origin + static_cast<I32>(op - first) + 2;
  c.riot.ram[r.sp & 0x7f] = static_cast<U8>(pc >> 8);
  c.riot.ram[(r.sp - 1) & 0x7f] = static_cast<U8>(pc);
  r.sp = static_cast<U8>(r.sp - 2);
  pc = op->operand;
  goto Find;
Return:
  if (r.sp < 0x80 || r.sp > 0xfd) goto Step;
  pc = c.riot.ram[(r.sp + 1) & 0x7f] | (c.riot.ram[(r.sp + 2) & 0x7f] << 8);
  // Execute tracks the bus, and reads the last byte of the JSR again
  if (!(pc & 0x1000) || IsHot(kKind, pc) || (pc & 0xfff) == 0xfff) goto Step;
  ++pc;
  r.sp = static_cast<U8>(r.sp + 2);
  goto Find;
Push:
  if (r.sp < 0x80) goto Step;
  c.riot.ram[r.sp & 0x7f] = r.a;
  --r.sp;
  NEXT(1)
PushFlags:
  POKE(WriteLow(c, r.sp, PackFlags(r), now))
  --r.sp;
  NEXT_OF_FRAME(1)
Pull:
  bus = ReadLow(c, r.sp, 0x68, cycles);
  ++r.sp;
  r.a = ReadLow(c, r.sp, bus, cycles);
  SetNZ(r, r.a);
  NEXT(1)
PullFlags:
  bus = ReadLow(c, r.sp, 0x28, cycles);
  ++r.sp;
  value = ReadLow(c, r.sp, bus, cycles);
  UnpackFlags(r, value);
  NEXT(1)

WaitPlus:
  WAIT(!(r.n & 0x80), true)
WaitNotEqual:
  WAIT(r.z, false)

#define READ(CODE, MODE, NAME)
#define WRITE(CODE, MODE, NAME)
#define MODIFY(CODE, MODE, NAME)
#define BRANCH(CODE, TAKEN)  \
  Branch##CODE : if (TAKEN) { \
    cycles += op->operand;   \
    op += op->jump;          \
    ENTER                    \
  }                          \
  op += 2;                   \
  ENTER
#define WAITING_BRANCH(CODE, TAKEN) BRANCH(CODE, TAKEN)
#define PLAIN(CODE, STATEMENT) \
  Plain##CODE : STATEMENT;     \
  NEXT(1)
#include "rollouts/atari2600/opcodes.inc"
  ROLLOUTS_DECODED_READS(READS)
  ROLLOUTS_DECODED_WRITES(WRITES)
  ROLLOUTS_DECODED_MODIFIES(MODIFIES)
}

#undef READ
#undef WRITE
#undef MODIFY
#undef BRANCH
#undef WAITING_BRANCH
#undef PLAIN
#undef READS
#undef WRITES
#undef MODIFIES
#undef POINT
#undef POKE
#undef WAIT
#undef GO_ON
#undef NEXT
#undef NEXT_OF_FRAME
#undef ENTER

}  // namespace rollouts::atari2600
