// SPDX-License-Identifier: Apache-2.0
// The instructions of the 6507 (cpu_ops.h) as machine code.
#pragma once

#include "rollouts/atari2600/jit/stack_writer.h"

namespace rollouts::atari2600::jit {

class InstructionWriter : public StackWriter {
 protected:
  using StackWriter::StackWriter;

  // Writes an instruction. Returns whether the next one in memory may follow it.
  bool Compile(const Instruction& op) {
    // handlers.inc ends with reads, writes and modifies, in this order
    static_assert(kSAXRam == kADCValue + (kOpSBC + 1) * kReadForms);
    static_assert(kASLRam == kSAXRam + (kOpSTY + 1) * kWriteForms);
    const I32 handler = op.handler;
    const I32 read = handler - kADCValue;
    const I32 write = handler - kSAXRam;
    const I32 modify = handler - kASLRam;
    if (modify >= 0) return CompileModify(op, modify / kModifyForms, modify % kModifyForms);
    if (write >= 0) return CompileWrite(op, write / kWriteForms, write % kWriteForms);
    if (read >= 0) return CompileRead(op, read / kReadForms, read % kReadForms);
    switch (handler) {
      case kStep: Exit(at_); return false;
      case kWsync: CompileWsync(op); return true;
      case kJump: JumpTo(op.operand); return false;
      case kJumpIndirect:
        if (op.operand < 0x80 || op.operand >= 0xff) {
          Exit(at_);
          return false;
        }
        asm_.Load16(kAx, {kRam, op.operand & 0x7f});
        // only Execute tracks the bus
        asm_.Test(kAx, 0x1000);
        Exit(kZero, at_);
        JumpToAddressInAx(at_);
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
  // Operations in the order of decoded.h.
#define ROLLOUTS_NAME(NAME) kOp##NAME,
  enum { ROLLOUTS_DECODED_READS(ROLLOUTS_NAME) };
  enum { ROLLOUTS_DECODED_WRITES(ROLLOUTS_NAME) };
  enum { ROLLOUTS_DECODED_MODIFIES(ROLLOUTS_NAME) };
#undef ROLLOUTS_NAME

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
  // Shifts a byte.
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

  // Expects the x86's flags to be set.
  bool CompileBranch(const Instruction& op, Condition taken) {
    const Distance goes_on = asm_.Jump(static_cast<Condition>(taken ^ 1));
    Enter(at_ + op.jump, op.operand);
    GoTo(at_ + op.jump);
    asm_.Bind(goes_on);
    Enter(at_ + 2);
    return true;
  }

  // Writes code that does all rounds but the last of a counting loop at once; a loop that waits for
  // the timer is left to the caller. See SkipLoop.
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
    // the number of rounds; none are done where the flags do not describe the counter
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
    asm_.Do(kCmp, kCx, kAlarm);
    const Distance is_plain = asm_.Jump(kLess);
    asm_.Move(kSi, kWsyncRegister);
    CallWrite(op, kAx);
    const Distance is_done = asm_.Jump();
    asm_.Bind(is_plain);
    // does the same as BeginAccess, then adds the cycles up to the line's end
    asm_.Store(kTouched, kCx);
    asm_.Store(kTouchedRegister, kWsyncRegister);
    asm_.Do(kSub, kAx, kLineStart);
    asm_.Multiply64(kCx, kAx, kReciprocal);
    asm_.Shift64(kShr, kCx, 32);
    asm_.Multiply(kCx, kCx, kLineCycles);
    asm_.Do(kSub, kCx, kAx);
    const Distance is_at_start = asm_.Jump(kZero);
    asm_.Do(kAdd, kCx, kLineCycles);
    asm_.Do(kAdd, kCycles, kCx);
    asm_.Bind(is_at_start);
    asm_.Bind(is_done);
  }

  bool CompileRead(const Instruction& op, I32 name, I32 form) {
    if (name == kOpADC || name == kOpSBC) {
      asm_.Do8(kCmp, kDecimalFlag, U8{0});
      Exit(kNotZero, at_);
    }
    const Value value = Fetch(op, form);
    switch (name) {
      case kOpADC:
        asm_.CarryFrom(kCarryFlag);
        Do8(kAdc, kA, value);
        asm_.Set8(kCarry, kCarryFlag);
        asm_.Set8(kOverflows, kOverflowFlag);
        asm_.Move(kResult, kA);
        break;
      case kOpSBC:
        asm_.Do8(kCmp, kCarryFlag, U8{1});
        Do8(kSbb, kA, value);
        asm_.Set8(kNoCarry, kCarryFlag);
        asm_.Set8(kOverflows, kOverflowFlag);
        asm_.Move(kResult, kA);
        break;
      case kOpAND: Logic(kAnd, value); break;
      case kOpORA: Logic(kOr, value); break;
      case kOpEOR: Logic(kXor, value); break;
      case kOpCMP: CompareWith(kA, value); break;
      case kOpCPX: CompareWith(kX, value); break;
      case kOpCPY: CompareWith(kY, value); break;
      case kOpLAX: Take(kX, value); asm_.Move(kA, kX); asm_.Move(kResult, kX); break;
      case kOpLDA: Take(kA, value); asm_.Move(kResult, kA); break;
      case kOpLDX: Take(kX, value); asm_.Move(kResult, kX); break;
      case kOpLDY: Take(kY, value); asm_.Move(kResult, kY); break;
      case kOpBIT:
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

  // The register that an instruction writes to memory; AX for SAX.
  Register Written(I32 name) {
    if (name == kOpSTA) return kA;
    if (name == kOpSTX) return kX;
    if (name == kOpSTY) return kY;
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
      case kOpDEC: asm_.Do8(kSub, kResult, U8{1}); break;
      case kOpINC: asm_.Do8(kAdd, kResult, U8{1}); break;
      case kOpASL: ShiftLeft(kResult, false); break;
      case kOpROL: ShiftLeft(kResult, true); break;
      case kOpLSR: ShiftRight(kResult, false); break;
      default: ShiftRight(kResult, true); break;
    }
    asm_.Store8(place, kResult);
    return true;
  }
};

}  // namespace rollouts::atari2600::jit
