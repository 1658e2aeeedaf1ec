// SPDX-License-Identifier: Apache-2.0
// Writes machine code of x86-64, as far as rom_compiler.h needs it. Source: Intel 64 and IA-32
// Architectures Software Developer's Manual, volume 2.
#pragma once

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "rollouts/atari2600/console.h"

namespace rollouts::atari2600::jit {

enum Register : U8 {
  kAx, kCx, kDx, kBx, kSp, kBp, kSi, kDi, kR8, kR9, kR10, kR11, kR12, kR13, kR14, kR15
};

// Conditions of a jump or a set, by their numbers in the code.
enum Condition : U8 {
  kOverflows = 0x0, kCarry = 0x2, kNoCarry = 0x3, kZero = 0x4, kNotZero = 0x5, kAbove = 0x7,
  kNegative = 0x8, kNotNegative = 0x9, kLess = 0xc
};

// Arithmetic operations, by their numbers in the code of an immediate operand.
enum Arithmetic : U8 { kAdd = 0, kOr = 1, kAdc = 2, kSbb = 3, kAnd = 4, kSub = 5, kXor = 6, kCmp = 7 };
enum ShiftKind : U8 { kRcr = 3, kShl = 4, kShr = 5 };

// A place in memory: [base + index * scale + offset].
struct Place {
  Register base;
  I32 offset = 0;
  Register index = kSp;  // none
  U8 scale_bits = 0;
};

// The place in the code of a jump's distance, which is filled in later.
using Distance = std::size_t;

// Operations are on registers of 32 bits unless the name contains another width.
class Assembler {
 public:
  std::size_t size() const { return code_.size(); }
  const U8* data() const { return code_.data(); }

  void Load(Register to, Place from) { Code(false, false, 0x8b, to, from); }
  void Load64(Register to, Place from) { Code(true, false, 0x8b, to, from); }
  void Load8(Register to, Place from) { Code2(0xb6, to, from); }
  void Load16(Register to, Place from) { Code2(0xb7, to, from); }
  void Store(Place to, Register from) { Code(false, false, 0x89, from, to); }
  void Store8(Place to, Register from) { Code(false, true, 0x88, from, to); }
  void Store8(Place to, U8 value) {
    Code(false, false, 0xc6, kAx, to);
    code_.push_back(value);
  }
  void Store16(Place to, Register from) {
    code_.push_back(0x66);
    Code(false, false, 0x89, from, to);
  }
  void Store64(Place to, Register from) { Code(true, false, 0x89, from, to); }
  void Store(Place to, I32 value) {
    Code(false, false, 0xc7, kAx, to);
    Put32(value);
  }
  void Move(Register to, Register from) { Code(false, false, 0x89, from, to); }
  void Move64(Register to, Register from) { Code(true, false, 0x89, from, to); }
  void Move8(Register to, Register from) { Code2(true, 0xb6, to, from); }
  void Move16(Register to, Register from) { Code2(false, 0xb7, to, from); }
  void Move(Register to, I32 value) {
    if (value == 0) return Do(kXor, to, to);
    Rex(false, false, kAx, kAx, to);
    code_.push_back(static_cast<U8>(0xb8 + (to & 7)));
    Put32(value);
  }
  void Move64(Register to, U64 value) {
    Rex(true, false, kAx, kAx, to);
    code_.push_back(static_cast<U8>(0xb8 + (to & 7)));
    for (I32 i = 0; i < 8; ++i) code_.push_back(static_cast<U8>(value >> (8 * i)));
  }
  void Address(Register to, Place of) { Code(false, false, 0x8d, to, of); }
  void Address64(Register to, Place of) { Code(true, false, 0x8d, to, of); }
  // Loads the address `at` bytes after the first instruction; `at` may be negative.
  void AddressOfCode(Register to, I32 at) {
    Rex(true, false, to, kAx, kAx);
    code_.push_back(0x8d);
    code_.push_back(static_cast<U8>(0x05 | (to & 7) << 3));
    Put32(at - static_cast<I32>(code_.size()) - 4);
  }

  void Do(Arithmetic what, Register to, Register with) { Code(false, false, Op(what, 1), with, to); }
  void Do64(Arithmetic what, Register to, Register with) { Code(true, false, Op(what, 1), with, to); }
  void Do(Arithmetic what, Register to, Place with) { Code(false, false, Op(what, 3), to, with); }
  void Do(Arithmetic what, Register to, I32 value) { DoImmediate(false, what, to, value); }
  void Do64(Arithmetic what, Register to, I32 value) { DoImmediate(true, what, to, value); }
  void Do8(Arithmetic what, Register to, Register with) { Code(false, true, Op(what, 0), with, to, true); }
  void Do8(Arithmetic what, Register to, Place with) { Code(false, true, Op(what, 2), to, with); }
  void Do8(Arithmetic what, Register to, U8 value) {
    Code(false, true, 0x80, static_cast<Register>(what), to, true);
    code_.push_back(value);
  }
  void Do8(Arithmetic what, Place to, U8 value) {
    Code(false, false, 0x80, static_cast<Register>(what), to);
    code_.push_back(value);
  }
  void Test(Register with, I32 value) {
    Rex(false, false, kAx, kAx, with);
    code_.push_back(0xf7);
    code_.push_back(static_cast<U8>(0xc0 | (with & 7)));
    Put32(value);
  }
  void Test8(Register with) { Code(false, true, 0x84, with, with, true); }
  void Shift(ShiftKind how, Register what, U8 bits) {
    Code(false, false, 0xc1, static_cast<Register>(how), what);
    code_.push_back(bits);
  }
  void Shift64(ShiftKind how, Register what, U8 bits) {
    Code(true, false, 0xc1, static_cast<Register>(how), what);
    code_.push_back(bits);
  }
  // Shifts by one bit.
  void Shift8(ShiftKind how, Register what) {
    Code(false, true, 0xd0, static_cast<Register>(how), what, true);
  }
  // Sets the x86's carry to bit 0 of a register.
  void CarryFrom(Register of) {
    Code2(false, 0xba, static_cast<Register>(4), of);
    code_.push_back(0);
  }
  void Multiply(Register to, Register with, I32 value) { MultiplyBy(false, to, with, value); }
  void Multiply64(Register to, Register with, I32 value) { MultiplyBy(true, to, with, value); }
  void Set8(Condition when, Register to) {
    Code2(true, static_cast<U8>(0x90 | when), kAx, to);
  }
  void Set8(Condition when, Place to) { Code2(static_cast<U8>(0x90 | when), kAx, to); }

  void Push(Register what) { PushOrPop(0x50, what); }
  void Pop(Register what) { PushOrPop(0x58, what); }
  void Return() { code_.push_back(0xc3); }
  void Call(Register to) { Code(false, false, 0xff, static_cast<Register>(2), to); }
  void Jump(Register to) { Code(false, false, 0xff, static_cast<Register>(4), to); }
  void Jump(Place to) { Code(false, false, 0xff, static_cast<Register>(4), to); }
  void Call(std::size_t to) { Bind(Far({0xe8}), to); }
  void Jump(std::size_t to) { Bind(Jump(), to); }
  Distance Jump() { return Far({0xe9}); }
  Distance Jump(Condition when) { return Far({0x0f, static_cast<U8>(0x80 | when)}); }
  void Bind(Distance jump) { Bind(jump, code_.size()); }
  void Bind(Distance jump, std::size_t to) {
    const I32 distance = static_cast<I32>(to) - static_cast<I32>(jump) - 4;
    std::memcpy(code_.data() + jump, &distance, sizeof(distance));
  }

 private:
  static U8 Op(Arithmetic what, U8 form) { return static_cast<U8>(what << 3 | form); }

  void Put32(I32 value) {
    for (I32 i = 0; i < 4; ++i) code_.push_back(static_cast<U8>(value >> (8 * i)));
  }
  Distance Far(std::initializer_list<U8> opcode) {
    code_.insert(code_.end(), opcode);
    Put32(0);
    return code_.size() - 4;
  }
  // `bytes`: makes registers 4..7 mean the lowest bytes of SP..DI, which they do not without this
  // prefix.
  void Rex(bool wide, bool bytes, Register reg, Register index, Register base) {
    const I32 rex = 0x40 | wide << 3 | (reg >> 3) << 2 | (index >> 3) << 1 | (base >> 3);
    if (rex != 0x40 || bytes) code_.push_back(static_cast<U8>(rex));
  }
  void Code(bool wide, bool is_byte, U8 opcode, Register reg, Place at) {
    Rex(wide, is_byte && reg >= 4, reg, at.index == kSp ? kAx : at.index, at.base);
    code_.push_back(opcode);
    Operand(reg, at);
  }
  void Code(bool wide, bool is_byte, U8 opcode, Register reg, Register rm, bool both = false) {
    Rex(wide, is_byte && (reg >= 4 || (both && rm >= 4)), reg, kAx, rm);
    code_.push_back(opcode);
    code_.push_back(static_cast<U8>(0xc0 | (reg & 7) << 3 | (rm & 7)));
  }
  // Opcodes of two bytes.
  void Code2(U8 opcode, Register reg, Place at) {
    Rex(false, false, reg, at.index == kSp ? kAx : at.index, at.base);
    code_.insert(code_.end(), {0x0f, opcode});
    Operand(reg, at);
  }
  void Code2(bool is_byte, U8 opcode, Register reg, Register rm) {
    Rex(false, is_byte && rm >= 4, reg, kAx, rm);
    code_.insert(code_.end(), {0x0f, opcode});
    code_.push_back(static_cast<U8>(0xc0 | (reg & 7) << 3 | (rm & 7)));
  }
  void Operand(Register reg, Place at) {
    const bool is_near = at.offset >= -128 && at.offset <= 127;
    const U8 mode = is_near ? 0x40 : 0x80;
    const bool has_index = at.index != kSp || (at.base & 7) == kSp;
    code_.push_back(static_cast<U8>(mode | (reg & 7) << 3 | (has_index ? 4 : at.base & 7)));
    if (has_index) {
      code_.push_back(static_cast<U8>(at.scale_bits << 6 | (at.index & 7) << 3 | (at.base & 7)));
    }
    if (is_near) {
      code_.push_back(static_cast<U8>(at.offset));
    } else {
      Put32(at.offset);
    }
  }
  void DoImmediate(bool wide, Arithmetic what, Register to, I32 value) {
    const bool is_near = value >= -128 && value <= 127;
    Code(wide, false, is_near ? 0x83 : 0x81, static_cast<Register>(what), to);
    if (is_near) {
      code_.push_back(static_cast<U8>(value));
    } else {
      Put32(value);
    }
  }
  void MultiplyBy(bool wide, Register to, Register with, I32 value) {
    Code(wide, false, 0x69, to, with);
    Put32(value);
  }
  void PushOrPop(I32 opcode, Register what) {
    Rex(false, false, kAx, kAx, what);
    code_.push_back(static_cast<U8>(opcode + (what & 7)));
  }

  std::vector<U8> code_;
};

}  // namespace rollouts::atari2600::jit
