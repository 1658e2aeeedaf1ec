// SPDX-License-Identifier: Apache-2.0
// A ROM's instructions, decoded once for all environments of a game: at every byte of the ROM as if
// an instruction began there. So it is known in advance what an operand reaches: RAM, the TIA or
// ROM.
#pragma once

#include "rollouts/atari2600/cpu.h"

namespace rollouts::atari2600 {

#define ROLLOUTS_DECODED_READS(X)                                                      \
  X(ADC) X(AND) X(BIT) X(CMP) X(CPX) X(CPY) X(EOR) X(LAX) X(LDA) X(LDX) X(LDY) X(NOP) \
  X(ORA) X(SBC)
#define ROLLOUTS_DECODED_WRITES(X) X(SAX) X(STA) X(STX) X(STY)
#define ROLLOUTS_DECODED_MODIFIES(X) X(ASL) X(DEC) X(INC) X(LSR) X(ROL) X(ROR)

enum Handler : U8 {
#define HANDLER(NAME) k##NAME,
#include "rollouts/atari2600/handlers.inc"
#undef HANDLER
};

struct Instruction {
  U8 handler = kStep;  // kStep: not decoded, Execute runs it
  U8 cycles = 0;
  U16 operand = 0;
  U16 rest = 1;  // instructions up to and including one that may jump
  I16 jump = 0;  // how many bytes further a taken branch goes
};

// Tells if cartridges of this kind are decoded. Instructions are found by pages that are switched
// as a whole.
inline constexpr bool IsDecoded(CartridgeKind kind) {
  return kind != CartridgeKind::kFE && kind != CartridgeKind::kDpc;
}
inline constexpr I32 PageSize(CartridgeKind kind) {
  return kind == CartridgeKind::kE0 ? 1024 : 4096;
}
inline I32 PagesOf(CartridgeKind kind, I32 rom_size) {
  const I32 pages = rom_size / PageSize(kind);
  return pages ? pages : 1;
}

// Tells if an access to an address of the cartridge may do more than read the ROM.
inline constexpr bool IsHot(CartridgeKind kind, I32 address) {
  if (kind == CartridgeKind::kPlain) return false;
  return (address & 0xfff) >= 0xfe0 || (HasRam(kind) && (address & 0xfff) < 0x100);
}

// Ways to address an operand.
enum class Mode : U8 { kNone, IMM, ZP, ZPX, ZPY, AB, ABX, ABY, IZX, IZY };

struct Decoding {
  enum Form : U8 { kOther, kRead, kWrite, kModify, kPlain, kBranch };
  Form form = kOther;
  Mode mode = Mode::kNone;
  I32 handler = -1;  // the first of its handlers; negative: it has none
};

inline constexpr bool IsName(const char* a, const char* b) {
  for (; *a && *a == *b; ++a, ++b) {
  }
  return *a == *b;
}

inline constexpr I32 HandlerOf(const char* name) {
#define ROLLOUTS_FIND_READ(NAME) \
  if (IsName(name, #NAME)) return k##NAME##Value;
#define ROLLOUTS_FIND(NAME) \
  if (IsName(name, #NAME)) return k##NAME##Ram;
  ROLLOUTS_DECODED_READS(ROLLOUTS_FIND_READ)
  ROLLOUTS_DECODED_WRITES(ROLLOUTS_FIND)
  ROLLOUTS_DECODED_MODIFIES(ROLLOUTS_FIND)
#undef ROLLOUTS_FIND_READ
#undef ROLLOUTS_FIND
  return -1;
}

inline Decoding DecodingOf(U8 opcode) {
  switch (opcode) {
#define READ(CODE, MODE, NAME) \
  case CODE: return {Decoding::kRead, Mode::MODE, HandlerOf(#NAME)};
#define WRITE(CODE, MODE, NAME) \
  case CODE: return {Decoding::kWrite, Mode::MODE, HandlerOf(#NAME)};
#define MODIFY(CODE, MODE, NAME) \
  case CODE: return {Decoding::kModify, Mode::MODE, HandlerOf(#NAME)};
#define PLAIN(CODE, STATEMENT) \
  case CODE: return {Decoding::kPlain, Mode::kNone, kPlain##CODE};
#define BRANCH(CODE, TAKEN) \
  case CODE: return {Decoding::kBranch, Mode::kNone, kBranch##CODE};
#define WAITING_BRANCH(CODE, TAKEN) BRANCH(CODE, TAKEN)
#include "rollouts/atari2600/opcodes.inc"
#undef READ
#undef WRITE
#undef MODIFY
#undef PLAIN
#undef BRANCH
#undef WAITING_BRANCH
    case 0x4c: return {Decoding::kOther, Mode::AB, kJump};
    case 0x6c: return {Decoding::kOther, Mode::AB, kJumpIndirect};
    case 0x20: return {Decoding::kOther, Mode::AB, kCall};
    case 0x60: return {Decoding::kOther, Mode::kNone, kReturn};
    case 0x48: return {Decoding::kOther, Mode::kNone, kPush};
    case 0x08: return {Decoding::kOther, Mode::kNone, kPushFlags};
    case 0x68: return {Decoding::kOther, Mode::kNone, kPull};
    case 0x28: return {Decoding::kOther, Mode::kNone, kPullFlags};
    default: return {};
  }
}

// The handler of a read, counted from the first; negative: none of them fits. `page`: the bytes
// that are switched together with the instruction.
inline I32 ReadOf(CartridgeKind kind, Mode mode, const U8* page, Instruction& op) {
  const I32 operand = op.operand;
  const bool is_far = operand & 0x1000;
  switch (mode) {
    case Mode::IMM: return kLDAValue - kLDAValue;
    case Mode::ZP:
      if (!(operand & 0x80)) return kLDATia - kLDAValue;
      op.operand = static_cast<U16>(operand & 0x7f);
      return kLDARam - kLDAValue;
    case Mode::ZPX: return kLDALowX - kLDAValue;
    case Mode::ZPY: return kLDALowY - kLDAValue;
    case Mode::AB:
      if (!is_far) return kLDABus - kLDAValue;
      if (IsHot(kind, operand)) return -1;
      if (PageSize(kind) != 4096) return kLDABus - kLDAValue;
      op.operand = page[operand & 0xfff];
      return kLDAConstant - kLDAValue;
    case Mode::ABX: return kLDAFarX - kLDAValue;
    case Mode::ABY: return kLDAFarY - kLDAValue;
    case Mode::IZX: return kLDAPointerX - kLDAValue;
    case Mode::IZY: return operand >= 0x80 && operand < 0xff ? kLDAPointer - kLDAValue : -1;
    default: return -1;
  }
}

inline I32 WriteOf(CartridgeKind kind, Mode mode, Instruction& op) {
  const I32 operand = op.operand;
  switch (mode) {
    case Mode::ZP:
      if (!(operand & 0x80)) return kSTATia - kSTARam;
      op.operand = static_cast<U16>(operand & 0x7f);
      return kSTARam - kSTARam;
    case Mode::ZPX: return kSTALowX - kSTARam;
    case Mode::ZPY: return kSTALowY - kSTARam;
    case Mode::AB: return (operand & 0x1000) && IsHot(kind, operand) ? -1 : kSTABus - kSTARam;
    case Mode::ABX: return kSTAFarX - kSTARam;
    case Mode::ABY: return kSTAFarY - kSTARam;
    case Mode::IZY: return operand >= 0x80 && operand < 0xff ? kSTAPointer - kSTARam : -1;
    default: return -1;
  }
}

// Tells if SkipLoop can run the loop that ends with the branch at `code`.
inline bool IsWait(const U8* code) {
  const bool counts = code[1] == 0xfd && (code[-1] == 0xca || code[-1] == 0x88);
  return counts || (code[1] == 0xfb && code[-2] == 0x84 && code[-1] == 0x02 && code[-3] >= 0xac &&
                    code[-3] <= 0xae);
}

// Decodes the instruction at a place of a page, whose ROM starts at `offset`; leaves `rest` unset.
inline Instruction Decode(CartridgeKind kind, const U8* rom, I32 rom_size, I32 offset, I32 at) {
  const U8* const page = rom + offset;
  Instruction op;
  // such code is run by Execute, which reads it byte by byte
  if ((at & 0x3ff) >= 0x3fe || (HasRam(kind) && at < 0x100)) return op;
  const U8* const code = page + at;
  const Decoding decoding = DecodingOf(code[0]);
  const I32 length = LengthOf(code[0]);
  // Execute also runs instructions that leave the page
  if (decoding.handler < 0 || at + length >= PageSize(kind)) return op;
  Instruction found;
  found.cycles = static_cast<U8>(CyclesOf(code[0]));
  found.operand = static_cast<U16>(length == 3 ? code[1] | (code[2] << 8) : code[1]);
  I32 handler = decoding.handler;
  // code among the chips' registers is read from the bus, which only Execute tracks
  if ((handler == kJump || handler == kCall) && !(found.operand & 0x1000)) return op;
  I32 which = 0;
  if (decoding.form == Decoding::kRead) {
    which = ReadOf(kind, decoding.mode, page, found);
  } else if (decoding.form == Decoding::kWrite) {
    which = WriteOf(kind, decoding.mode, found);
    if (which == kSTATia - kSTARam && (found.operand & 0x3f) == 0x02) handler = kWsync - which;
  } else if (decoding.form == Decoding::kModify) {
    if (decoding.mode == Mode::ZP && (found.operand & 0x80)) {
      found.operand &= 0x7f;
    } else {
      which = decoding.mode == Mode::ZPX ? kINCRamX - kINCRam : -1;
    }
  } else if (decoding.form == Decoding::kBranch) {
    const I32 target = at + 2 + static_cast<signed char>(code[1]);
    if (target < 0 || target >= PageSize(kind)) return op;
    const I32 crosses = ((target ^ (at + 2)) >> 8) & 1;
    found.jump = static_cast<I16>(target - at);
    found.operand = static_cast<U16>(1 + crosses);
    // the whole loop lies in one KiB
    if ((code[0] == 0x10 || code[0] == 0xd0) && code[1] >= 0xfb && (target & 0x3ff) <= 0x400 - 5 &&
        at >= 3 && !(HasRam(kind) && target < 0x100) && IsWait(code)) {
      handler = code[0] == 0x10 ? kWaitPlus : kWaitNotEqual;
      found.operand = static_cast<U16>((offset + at) % rom_size | crosses << 15);
    }
  }
  if (which < 0) return op;
  found.handler = static_cast<U8>(handler + which);
  return found;
}

// True if the next instruction executed may differ from the next one in memory.
inline bool EndsBlock(const Instruction& op) {
  const I32 handler = op.handler;
  if (handler == kStep || handler == kJump || handler == kCall) return true;
  if (handler == kJumpIndirect || handler == kReturn) return true;
  if (handler == kWaitPlus || handler == kWaitNotEqual) return true;
  return handler >= kBranch0x10 && handler <= kBranch0xf0;
}

// Fills PagesOf(kind, rom_size) * PageSize(kind) records.
inline void DecodeRom(CartridgeKind kind, const U8* rom, I32 rom_size, Instruction* records) {
  const I32 size = PageSize(kind);
  U8 doubled[4096];
  // 2 KiB appear twice
  const bool is_small = rom_size < size;
  for (I32 i = 0; is_small && i < size; ++i) doubled[i] = rom[i % rom_size];
  for (I32 page = 0; page < PagesOf(kind, rom_size); ++page) {
    Instruction* const first = records + page * size;
    for (I32 at = size - 1; at >= 0; --at) {
      Instruction& op = first[at] = Decode(kind, is_small ? doubled : rom, rom_size, page * size, at);
      if (EndsBlock(op)) continue;
      const U8 opcode = (is_small ? doubled : rom)[page * size + at];
      op.rest = static_cast<U16>(1 + first[at + LengthOf(opcode)].rest);
    }
  }
}

}  // namespace rollouts::atari2600
