// SPDX-License-Identifier: Apache-2.0
// The instructions of the 6507 (cpu_ops.h) as machine code.
#pragma once

#include "rollouts/atari2600/jit/operand_writer.h"

namespace rollouts::atari2600::jit {

class InstructionWriter : public OperandWriter {
 protected:
  using OperandWriter::OperandWriter;

  // Writes an instruction. Returns whether the one behind it may follow.
  bool Compile(const Instruction& op) {
    // handlers.inc ends with these three
    static_assert(kSAXRam == kADCValue + (kSBC + 1) * kReadForms);
    static_assert(kASLRam == kSAXRam + (kSTY + 1) * kWriteForms);
    const I32 handler = op.handler;
    const I32 read = handler - kADCValue;
    const I32 write = handler - kSAXRam;
    const I32 modify = handler - kASLRam;
    if (modify >= 0) return CompileModify(op, modify / kModifyForms, modify % kModifyForms);
    if (write >= 0) return CompileWrite(op, write / kWriteForms, write % kWriteForms);
    if (read >= 0) return CompileRead(op, read / kReadForms, read % kReadForms);
    switch (handler) {
      case kStep: Exit(at_); return false;
      case kLeave:
        asm_.Load(kAx, kOrigin);
        asm_.Do(kAdd, kAx, PageSize(kind_));
        asm_.Move16(kAx, kAx);
        JumpToFind(at_);
        return false;
      case kWsync: CompileWsync(op); return true;
      case kJump: JumpTo(op.operand); return false;
      case kJumpIndirect:
        if (op.operand < 0x80 || op.operand >= 0xff) {
          Exit(at_);
          return false;
        }
        asm_.Load16(kAx, {kRam, op.operand & 0x7f});
        // Execute knows what is on the bus
        asm_.Test(kAx, 0x1000);
        Exit(kZero, at_);
        JumpToFind(at_);
        return false;
      case kCall: CompileCall(op); return false;
      case kReturn: CompileReturn(); return false;
      case kPush:
        asm_.Load8(kCx, kStackPointer);
        asm_.Test8(kCx);
        Exit(kNotNegative, at_);
        asm_.Store8({kRam, -0x80, kCx}, kA);
        asm_.Do8(kSub, kStackPointer, U8{1});
        return true;
      case kPushFlags: CompilePushFlags(op); return true;
      case kPull:
        PullByte(op, 0x68);
        asm_.Move(kA, kAx);
        asm_.Move(kResult, kAx);
        return true;
      case kPullFlags: CompilePullFlags(op); return true;
      case kWaitPlus:
      case kWaitNotEqual: return CompileWait(op);
      case kBranch0x10: asm_.Test(kResult, kNegativeBits); return CompileBranch(op, kZero);
      case kBranch0x30: asm_.Test(kResult, kNegativeBits); return CompileBranch(op, kNotZero);
      case kBranch0x50: asm_.Do8(kCmp, kOverflowFlag, U8{0}); return CompileBranch(op, kZero);
      case kBranch0x70: asm_.Do8(kCmp, kOverflowFlag, U8{0}); return CompileBranch(op, kNotZero);
      case kBranch0x90: asm_.Test8(kCarryFlag); return CompileBranch(op, kZero);
      case kBranch0xb0: asm_.Test8(kCarryFlag); return CompileBranch(op, kNotZero);
      case kBranch0xd0: asm_.Test8(kResult); return CompileBranch(op, kNotZero);
      case kBranch0xf0: asm_.Test8(kResult); return CompileBranch(op, kZero);
      default: CompilePlain(handler); return true;
    }
  }

 private:
  // In the order of decoded.h.
  enum { kADC, kAND, kBIT, kCMP, kCPX, kCPY, kEOR, kLAX, kLDA, kLDX, kLDY, kNOP, kORA, kSBC };
  enum { kSAX, kSTA, kSTX, kSTY };
  enum { kASL, kDEC, kINC, kLSR, kROL, kROR };

  void CompilePlain(I32 handler) {
    switch (handler) {
      case kPlain0x0a: ShiftLeft(kA, false); return asm_.Move(kResult, kA);
      case kPlain0x2a: ShiftLeft(kA, true); return asm_.Move(kResult, kA);
      case kPlain0x4a: ShiftRight(kA, false); return asm_.Move(kResult, kA);
      case kPlain0x6a: ShiftRight(kA, true); return asm_.Move(kResult, kA);
      case kPlain0x18: return asm_.Move(kCarryFlag, 0);
      case kPlain0x38: return asm_.Move(kCarryFlag, 1);
      case kPlain0x58: return asm_.Store8(kInterruptFlag, U8{0});
      case kPlain0x78: return asm_.Store8(kInterruptFlag, U8{1});
      case kPlain0xb8: return asm_.Store8(kOverflowFlag, U8{0});
      case kPlain0xd8: return asm_.Store8(kDecimalFlag, U8{0});
      case kPlain0xf8: return asm_.Store8(kDecimalFlag, U8{1});
      case kPlain0xaa: asm_.Move(kX, kA); return asm_.Move(kResult, kX);
      case kPlain0xa8: asm_.Move(kY, kA); return asm_.Move(kResult, kY);
      case kPlain0x8a: asm_.Move(kA, kX); return asm_.Move(kResult, kA);
      case kPlain0x98: asm_.Move(kA, kY); return asm_.Move(kResult, kA);
      case kPlain0xba: asm_.Load8(kX, kStackPointer); return asm_.Move(kResult, kX);
      case kPlain0x9a: return asm_.Store8(kStackPointer, kX);
      case kPlain0xe8: return Count(kX, kAdd);
      case kPlain0xc8: return Count(kY, kAdd);
      case kPlain0xca: return Count(kX, kSub);
      case kPlain0x88: return Count(kY, kSub);
      default: return;  // NOP
    }
  }

  void Count(Register what, Arithmetic how) {
    asm_.Do8(how, what, U8{1});
    asm_.Move(kResult, what);
  }
  // Of a byte.
  void ShiftLeft(Register what, bool takes_carry) {
    if (takes_carry) asm_.CarryFrom(kCarryFlag);
    asm_.Do8(takes_carry ? kAdc : kAdd, what, what);
    asm_.Set8(kCarry, kCarryFlag);
  }
  void ShiftRight(Register what, bool takes_carry) {
    if (takes_carry) asm_.CarryFrom(kCarryFlag);
    asm_.Shift8(takes_carry ? kRcr : kShr, what);
    asm_.Set8(kCarry, kCarryFlag);
  }

  void JumpTo(I32 address) {
    if (HasSlices()) {
      asm_.Move(kAx, address);
      JumpToFind(at_);
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
    asm_.Move16(kAx, kAx);
    asm_.Do8(kAdd, kStackPointer, U8{2});
    JumpToFind(at_);
  }

  // PackFlags, to the stack, which may be the TIA.
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

  // The CPU's flags are set.
  bool CompileBranch(const Instruction& op, Condition taken) {
    const Distance goes_on = asm_.Jump(static_cast<Condition>(taken ^ 1));
    Enter(at_ + op.jump, op.operand);
    GoTo(at_ + op.jump);
    asm_.Bind(goes_on);
    Enter(at_ + 2);
    return true;
  }

  // All rounds but the last of a loop that only counts are done at once; one that waits for the timer is
  // left to the caller. See SkipLoop.
  bool CompileWait(const Instruction& op) {
    const bool while_positive = op.handler == kWaitPlus;
    const I32 taken = 1 + (op.operand >> 15);
    if (Bytes(at_)[1] != 0xfd) {
      Exit(at_);
      return false;
    }
    const Register counter = Bytes(at_)[-1] == 0xca ? kX : kY;
    if (while_positive) {
      asm_.Test(kResult, kNegativeBits);
    } else {
      asm_.Test8(kResult);
    }
    const Distance goes_on = asm_.Jump(while_positive ? kNotZero : kZero);
    // rounds; none for a counter of which the flags tell nothing
    asm_.Move(kAx, counter);
    if (!while_positive) asm_.Do(kSub, kAx, 1);
    asm_.Do(kCmp, kAx, while_positive ? 0x7f : 0xff);
    const Distance is_other = asm_.Jump(kAbove);
    asm_.Address(kCx, {kAx, 2, kAx});
    asm_.Do(kCmp, kLeft, kCx);
    const Distance is_short = asm_.Jump(kNegative);
    asm_.Do(kSub, kCx, 2);
    asm_.Do(kSub, kLeft, kCx);
    asm_.Multiply(kCx, kAx, 4 + taken);
    asm_.Do(kAdd, kCycles, kCx);
    asm_.Do(kSub, counter, kAx);
    asm_.Move(kResult, counter);
    asm_.Bind(is_other);
    asm_.Bind(is_short);
    Enter(at_ + op.jump, taken);
    GoTo(at_ + op.jump);
    asm_.Bind(goes_on);
    Enter(at_ + 2);
    return true;
  }

  void CompileWsync(const Instruction& op) {
    constexpr I32 kReciprocal = 56512728;  // 2**32 / kLineCycles, rounded up
    Now(kAx, op);
    asm_.Address(kCx, {kAx, 0, kAx, 1});
    asm_.Do(kSub, kAx, kLineStart);
    asm_.Do(kCmp, kAx, kLimit);
    Exit(kNoCarry, at_);
    asm_.Store(kTouched, kCx);
    asm_.Multiply64(kCx, kAx, kReciprocal);
    asm_.Shift64(kShr, kCx, 32);
    asm_.Multiply(kCx, kCx, kLineCycles);
    asm_.Do(kSub, kCx, kAx);
    const Distance is_at_start = asm_.Jump(kZero);
    asm_.Do(kAdd, kCx, kLineCycles);
    asm_.Do(kAdd, kCycles, kCx);
    asm_.Bind(is_at_start);
  }

  bool CompileRead(const Instruction& op, I32 name, I32 form) {
    if (name == kADC || name == kSBC) {
      asm_.Do8(kCmp, kDecimalFlag, U8{0});
      Exit(kNotZero, at_);
    }
    const Value value = Fetch(op, form);
    switch (name) {
      case kADC:
        asm_.CarryFrom(kCarryFlag);
        Do8(kAdc, kA, value);
        asm_.Set8(kCarry, kCarryFlag);
        asm_.Set8(kOverflows, kOverflowFlag);
        asm_.Move(kResult, kA);
        break;
      case kSBC:
        asm_.Do8(kCmp, kCarryFlag, U8{1});
        Do8(kSbb, kA, value);
        asm_.Set8(kNoCarry, kCarryFlag);
        asm_.Set8(kOverflows, kOverflowFlag);
        asm_.Move(kResult, kA);
        break;
      case kAND: Logic(kAnd, value); break;
      case kORA: Logic(kOr, value); break;
      case kEOR: Logic(kXor, value); break;
      case kCMP: CompareWith(kA, value); break;
      case kCPX: CompareWith(kX, value); break;
      case kCPY: CompareWith(kY, value); break;
      case kLAX: Take(kX, value); asm_.Move(kA, kX); asm_.Move(kResult, kX); break;
      case kLDA: Take(kA, value); asm_.Move(kResult, kA); break;
      case kLDX: Take(kX, value); asm_.Move(kResult, kX); break;
      case kLDY: Take(kY, value); asm_.Move(kResult, kY); break;
      case kBIT:
        Take(kAx, value);
        asm_.Move(kResult, kA);
        asm_.Do(kAnd, kResult, kAx);
        asm_.Move(kCx, kAx);
        asm_.Do(kAnd, kCx, 0x80);
        asm_.Shift(kShl, kCx, 8);
        asm_.Do(kOr, kResult, kCx);
        asm_.Shift(kShr, kAx, 6);
        asm_.Do(kAnd, kAx, 1);
        asm_.Store8(kOverflowFlag, kAx);
        break;
      default: break;
    }
    return true;
  }
  void Logic(Arithmetic what, const Value& value) {
    Do8(what, kA, value);
    asm_.Move(kResult, kA);
  }
  void CompareWith(Register left, const Value& value) {
    asm_.Move(kResult, left);
    Do8(kSub, kResult, value);
    asm_.Set8(kNoCarry, kCarryFlag);
  }

  // The register an instruction writes; AX for SAX.
  Register Written(I32 name) {
    if (name == kSTA) return kA;
    if (name == kSTX) return kX;
    if (name == kSTY) return kY;
    asm_.Move(kAx, kA);
    asm_.Do(kAnd, kAx, kX);
    return kAx;
  }

  bool CompileWrite(const Instruction& op, I32 name, I32 form) {
    const Register value = Written(name);
    const Register index = form == kToLowX || form == kToFarX ? kX : kY;
    switch (form) {
      case kToRam: asm_.Store8({kRam, op.operand}, value); break;
      case kToTia: CallTia(op, value); break;
      case kToLowX:
      case kToLowY:
        asm_.Address(kSi, {index, op.operand & 0xff});
        asm_.Move8(kSi, kSi);
        Store(op, value, true);
        break;
      case kToBus:
        if (op.operand & 0x1000) break;  // ROM
        asm_.Move(kSi, op.operand);
        CallWrite(op, value);
        break;
      case kToFarX:
      case kToFarY:
        asm_.Address(kSi, {index, op.operand});
        if (op.operand > 0xff00) asm_.Move16(kSi, kSi);
        Store(op, value, op.operand + 0xff < 0x200);
        break;
      default:
        asm_.Load16(kSi, {kRam, op.operand & 0x7f});
        asm_.Do(kAdd, kSi, kY);
        asm_.Move16(kSi, kSi);
        Store(op, value, false);
        break;
    }
    return true;
  }

  bool CompileModify(const Instruction& op, I32 name, I32 form) {
    Place place{kRam, op.operand};
    if (form == kInRamX) {
      asm_.Address(kDx, {kX, op.operand & 0xff});
      asm_.Move8(kDx, kDx);
      asm_.Test8(kDx);
      Exit(kNotNegative, at_);
      place = {kRam, -0x80, kDx};
    }
    asm_.Load8(kResult, place);
    switch (name) {
      case kDEC: asm_.Do8(kSub, kResult, U8{1}); break;
      case kINC: asm_.Do8(kAdd, kResult, U8{1}); break;
      case kASL: ShiftLeft(kResult, false); break;
      case kROL: ShiftLeft(kResult, true); break;
      case kLSR: ShiftRight(kResult, false); break;
      default: ShiftRight(kResult, true); break;
    }
    asm_.Store8(place, kResult);
    return true;
  }
};

}  // namespace rollouts::atari2600::jit
