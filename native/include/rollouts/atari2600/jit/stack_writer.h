// SPDX-License-Identifier: Apache-2.0
// Jumps to addresses, and the instructions of the stack.
#pragma once

#include "rollouts/atari2600/jit/operand_writer.h"

namespace rollouts::atari2600::jit {

class StackWriter : public OperandWriter {
 protected:
  using OperandWriter::OperandWriter;

  void JumpTo(I32 address) {
    if (HasSlices()) {
      asm_.Move(kAx, address);
      JumpToAddressInAx(at_);
      return;
    }
    const I32 to = First(Page(at_)) + (address & 0xfff);
    asm_.Store(kOrigin, address & 0xf000);
    Enter(to);
    GoTo(to);
  }

  void CompileCall(const Instruction& op) {
    asm_.Load8(kCx, kStackPointer);
    asm_.Do8(kCmp, kCx, U8{0x81});
    Exit(kCarry, at_);
    asm_.Load(kAx, kOrigin);
    asm_.Do(kAdd, kAx, InPage(at_) + 2);
    asm_.Store16({kRam, -0x81, kCx}, kAx);
    asm_.Do8(kSub, kStackPointer, U8{2});
    JumpTo(op.operand);
  }

  void CompileReturn() {
    asm_.Load8(kCx, kStackPointer);
    asm_.Do(kSub, kCx, 0x80);
    asm_.Do(kCmp, kCx, 0x7d);
    Exit(kAbove, at_);
    asm_.Load16(kAx, {kRam, 1, kCx});
    ExitUnlessCold(kAx, kDx);
    asm_.Do(kAdd, kAx, 1);
    if (!IsBanked()) {
      // after the cartridge's end: only Execute tracks the bus
      asm_.Test(kAx, 0x1000);
      Exit(kZero, at_);
    }
    asm_.Do8(kAdd, kStackPointer, U8{2});
    JumpToAddressInAx(at_);
  }

  // Pushes the packed flags to the stack, which may be the TIA.
  void CompilePushFlags(const Instruction& op) {
    asm_.Move(kDx, kResult);
    asm_.Shift(kShr, kDx, 8);
    asm_.Do(kOr, kDx, kResult);
    asm_.Do(kAnd, kDx, 0x80);
    asm_.Test8(kResult);
    asm_.Set8(kZero, kAx);
    asm_.Move8(kAx, kAx);
    asm_.Address(kDx, {kDx, 0x30, kAx, 1});
    asm_.Do(kOr, kDx, kCarryFlag);
    const auto add = [&](Place flag, U8 bit) {
      asm_.Load8(kAx, flag);
      asm_.Shift(kShl, kAx, bit);
      asm_.Do(kOr, kDx, kAx);
    };
    add(kInterruptFlag, 2);
    add(kDecimalFlag, 3);
    add(kOverflowFlag, 6);
    asm_.Load8(kSi, kStackPointer);
    asm_.Do8(kSub, kStackPointer, U8{1});
    Store(op, kDx, true);
  }

  void CompilePullFlags(const Instruction& op) {
    PullByte(op, 0x28);
    const auto take = [&](Place flag, U8 bit) {
      asm_.Move(kCx, kAx);
      asm_.Shift(kShr, kCx, bit);
      asm_.Do(kAnd, kCx, 1);
      asm_.Store8(flag, kCx);
    };
    take(kInterruptFlag, 2);
    take(kDecimalFlag, 3);
    take(kOverflowFlag, 6);
    asm_.Move(kCarryFlag, kAx);
    asm_.Do(kAnd, kCarryFlag, 1);
    asm_.Move(kResult, kAx);
    asm_.Do(kAnd, kResult, 0x80);
    asm_.Shift(kShl, kResult, 8);
    asm_.Shift(kShr, kAx, 1);
    asm_.Do(kAnd, kAx, 1);
    asm_.Do(kXor, kAx, 1);
    asm_.Do(kOr, kResult, kAx);
  }
};

}  // namespace rollouts::atari2600::jit
