// SPDX-License-Identifier: Apache-2.0
// Writes code for operands: RAM and ROM are accessed in line, the chips by functions.
#pragma once

#include "rollouts/atari2600/jit/code_writer.h"

namespace rollouts::atari2600::jit {

class OperandWriter : public CodeWriter {
 protected:
  using CodeWriter::CodeWriter;

  // Handlers in the order of handlers.inc.
  enum {
    kOfValue, kOfConstant, kOfRam, kOfLowX, kOfLowY, kOfTia, kOfBus, kOfFarX, kOfFarY, kOfPointerX,
    kOfPointer, kReadForms
  };
  enum {
    kToRam, kToTia, kToLowX, kToLowY, kToBus, kToFarX, kToFarY, kToPointer, kWriteForms
  };
  enum { kInRam, kInRamX, kModifyForms };
  static_assert(kLDAPointer - kLDAValue == I32{kOfPointer});
  static_assert(kSTAPointer - kSTARam == I32{kToPointer});

  // An operand that an instruction reads: a number, a byte of memory, or AX.
  struct Value {
    enum { kNumber, kMemory, kRegister } form = kRegister;
    U8 number = 0;
    Place place{kAx};
  };

  void Do8(Arithmetic what, Register to, const Value& value) {
    if (value.form == Value::kNumber) return asm_.Do8(what, to, value.number);
    if (value.form == Value::kMemory) return asm_.Do8(what, to, value.place);
    asm_.Do8(what, to, kAx);
  }
  void Take(Register to, const Value& value) {
    if (value.form == Value::kNumber) return asm_.Move(to, I32{value.number});
    if (value.form == Value::kMemory) return asm_.Load8(to, value.place);
    if (to != kAx) asm_.Move(to, kAx);
  }

  // Cycles from the end of an instruction, which takes `op.cycles`, to the end of its block.
  I32 Behind(const Instruction& op) { return TargetOf(at_).cycles - op.cycles; }
  void Now(Register to, const Instruction& op) {
    if (Behind(op)) {
      asm_.Address(to, {kCycles, -Behind(op)});
    } else {
      asm_.Move(to, kCycles);
    }
  }

  // Leaves the code where an access to an address of the cartridge does more than read: IsHot.
  void ExitIfHot(Register address, Register other) {
    if (!IsBanked()) return;
    asm_.Move(other, address);
    asm_.Do(kAnd, other, 0xfff);
    asm_.Do(kCmp, other, 0xfe0);
    Exit(kNoCarry, at_);
    if (!HasRam(kind_)) return;
    asm_.Do(kCmp, other, 0x100);
    Exit(kCarry, at_);
  }
  void ExitUnlessCold(Register address, Register other) {
    asm_.Test(address, 0x1000);
    Exit(kZero, at_);
    ExitIfHot(address, other);
  }

  // Finds the operand that an instruction reads.
  Value Fetch(const Instruction& op, I32 form) {
    const U8 low = static_cast<U8>(op.operand);
    switch (form) {
      case kOfValue:
      case kOfConstant: return {Value::kNumber, low};
      case kOfRam: return {Value::kMemory, 0, {kRam, op.operand}};
      case kOfLowX: return FetchLow(op, kX);
      case kOfLowY: return FetchLow(op, kY);
      case kOfTia:
        asm_.Move(kSi, op.operand);
        return CallRead(op, kReadTia, low);
      case kOfBus:
        asm_.Move(kSi, op.operand);
        return CallRead(op, kRead, op.operand >> 8);
      case kOfFarX: return FetchFar(op, kX);
      case kOfFarY: return FetchFar(op, kY);
      case kOfPointerX: return FetchPointedX(op);
      default: return FetchPointed(op);
    }
  }

  // Reads from the zero page, with an index: RAM or the TIA.
  Value FetchLow(const Instruction& op, Register index) {
    asm_.Address(kAx, {index, op.operand & 0xff});
    asm_.Move8(kAx, kAx);
    asm_.Test8(kAx);
    const Distance is_tia = asm_.Jump(kNotNegative);
    asm_.Load8(kAx, {kRam, -0x80, kAx});
    const Distance is_done = asm_.Jump();
    asm_.Bind(is_tia);
    asm_.Move(kSi, kAx);
    CallRead(op, kReadTia, op.operand & 0xff);
    asm_.Bind(is_done);
    return {};
  }

  // Reads from the address in SI; `bus` is the byte that was last on the data bus.
  Value CallRead(const Instruction& op, I32 thunk, I32 bus) {
    asm_.Move(kDx, bus);
    return CallRead(op, thunk);
  }
  Value CallRead(const Instruction& op, I32 thunk) {
    Now(kCx, op);
    asm_.Call(thunks_[thunk]);
    return {};
  }

  // Adds the cycle of an index that leaves the page.
  void AddCrossing(Register index, I32 low) {
    if (low == 0) return;
    asm_.Address(kCx, {index, low});
    asm_.Shift(kShr, kCx, 8);
    asm_.Do(kAdd, kCycles, kCx);
  }

  Value FetchFar(const Instruction& op, Register index) {
    const I32 first = op.operand & 0xfff;
    const I32 low = op.operand & 0xff;
    const bool is_far = op.operand & 0x1000;
    // whatever the index is
    const bool is_cold = is_far && first + 0xff < (IsBanked() ? 0xfe0 : 0x1000) &&
                         !(HasRam(kind_) && first < 0x100);
    if (is_cold && !HasSlices()) {
      AddCrossing(index, low);
      asm_.AddressOfCode(kAx, RomAt(Page(at_)) + first);
      return {Value::kMemory, 0, {kAx, 0, index}};
    }
    asm_.Address(kAx, {index, op.operand});
    if (op.operand > 0xff00) asm_.Move16(kAx, kAx);
    if (is_far) {
      if (!is_cold) ExitUnlessCold(kAx, kDx);
      AddCrossing(index, low);
      return ReadRom();
    }
    asm_.Do(kCmp, kAx, 0x1000);
    Exit(kNoCarry, at_);
    AddCrossing(index, low);
    asm_.Move(kSi, kAx);
    return CallRead(op, kRead, op.operand >> 8);
  }

  // Reads the cartridge at the address in AX.
  Value ReadRom() {
    if (HasSlices()) {
      asm_.Move(kCx, kAx);
      asm_.Do(kAnd, kAx, 0x3ff);
      AddSlice(kAx, kCx, kDx);
    } else {
      asm_.Do(kAnd, kAx, 0xfff);
    }
    asm_.AddressOfCode(kDx, RomAt(HasSlices() ? 0 : Page(at_)));
    return {Value::kMemory, 0, {kDx, 0, kAx}};
  }

  Value FetchPointed(const Instruction& op) {
    asm_.Load16(kAx, {kRam, op.operand & 0x7f});
    asm_.Move8(kSi, kAx);
    asm_.Move(kR8, kAx);
    asm_.Do(kAdd, kAx, kY);
    asm_.Do(kAdd, kSi, kY);
    asm_.Shift(kShr, kSi, 8);
    return FetchAnywhere(op);
  }
  Value FetchPointedX(const Instruction& op) {
    asm_.Address(kAx, {kX, op.operand & 0xff});
    asm_.Move8(kAx, kAx);
    asm_.Do(kSub, kAx, 0x80);
    asm_.Do(kCmp, kAx, 0x7e);
    Exit(kAbove, at_);
    asm_.Load16(kAx, {kRam, 0, kAx});
    asm_.Move(kR8, kAx);
    asm_.Move(kSi, 0);
    return FetchAnywhere(op);
  }
  // Reads from the address in AX, which takes SI more cycles; bits 8 to 15 of R8 were last on the
  // data bus.
  Value FetchAnywhere(const Instruction& op) {
    asm_.Test(kAx, 0x1000);
    const Distance is_far = asm_.Jump(kNotZero);
    asm_.Do(kAdd, kCycles, kSi);
    asm_.Move(kSi, kAx);
    asm_.Move(kDx, kR8);
    asm_.Shift(kShr, kDx, 8);
    CallRead(op, kRead);
    const Distance is_done = asm_.Jump();
    asm_.Bind(is_far);
    ExitIfHot(kAx, kDx);
    asm_.Do(kAdd, kCycles, kSi);
    Take(kAx, ReadRom());
    asm_.Bind(is_done);
    return {};
  }

  // Pulls a byte into AX. The byte at the old top is read too, which matters only to chips.
  void PullByte(const Instruction& op, U8 opcode) {
    asm_.Load8(kCx, kStackPointer);
    asm_.Do(kSub, kCx, 0x80);
    asm_.Do(kCmp, kCx, 0x7e);
    const Distance is_other = asm_.Jump(kAbove);
    asm_.Load8(kAx, {kRam, 1, kCx});
    asm_.Do8(kAdd, kStackPointer, U8{1});
    const Distance is_done = asm_.Jump();
    asm_.Bind(is_other);
    CallRead(op, kPullSlowly, opcode);
    asm_.Bind(is_done);
  }

  // Stores at the address in SI; `low`: the address is in RAM or the TIA.
  void Store(const Instruction& op, Register value, bool low) {
    if (low) {
      asm_.Test8(kSi);
    } else {
      asm_.Move(kCx, kSi);
      asm_.Do(kAnd, kCx, 0x1280);
      asm_.Do(kCmp, kCx, 0x80);
    }
    const Distance is_other = asm_.Jump(low ? kNotNegative : kNotZero);
    asm_.Do(kAnd, kSi, 0x7f);
    asm_.Store8({kRam, 0, kSi}, value);
    const Distance is_done = asm_.Jump();
    asm_.Bind(is_other);
    if (!low) {
      // only Execute handles writes to the cartridge
      asm_.Test(kSi, 0x1000);
      Exit(kNotZero, at_);
    }
    CallWrite(op, value);
    asm_.Bind(is_done);
  }
  // Writes to the address in SI.
  void CallWrite(const Instruction& op, Register value) {
    asm_.Move(kDx, value);
    Now(kCx, op);
    asm_.Call(thunks_[kWrite]);
    Exit(kNotZero, at_ + Length(at_));
  }
  // Writes to a register of the TIA.
  void CallTia(const Instruction& op, Register value) {
    const std::size_t thunk = thunks_[op.operand & 0x3f];
    if (!thunk) {
      asm_.Move(kSi, op.operand);
      return CallWrite(op, value);
    }
    asm_.Move(kSi, value);
    Now(kDx, op);
    asm_.Call(thunk);
    Exit(kNotZero, at_ + Length(at_));
  }
};

}  // namespace rollouts::atari2600::jit
