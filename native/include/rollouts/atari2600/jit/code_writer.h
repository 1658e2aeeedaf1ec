// SPDX-License-Identifier: Apache-2.0
// The parts of compiled code around single instructions: entering and leaving it, calls of
// functions, jumps to addresses, and the charge of a block.
#pragma once

#include <vector>

#include "rollouts/atari2600/jit/passage.h"

namespace rollouts::atari2600::jit {

class CodeWriter {
 public:
  // `rom` has the pages one after the other, each as the CPU sees it, and `records` are the decoded
  // instructions. The code will lie after the targets and the ROM.
  CodeWriter(CartridgeKind kind, const std::vector<U8>& rom, const Instruction* records)
      : kind_(kind), rom_(rom), records_(records) {
    const auto count = static_cast<std::size_t>(Pages() * PageSize(kind));
    targets_.resize(count);
    lengths_.assign(count, 1);
    is_compiled_.assign(count, 0);
    jumps_.resize(count);
    exits_.resize(count);
    MakeEnter();
    MakeExit();
    MakeThunks();
    MakeDispatchers();
  }

 protected:
  // Thunks, named by the functions that they call.
  enum { kReadTia = 0x40, kRead, kPullSlowly, kWrite, kThunks };

  const Instruction& Record(I32 at) const { return records_[at]; }
  Target& TargetOf(I32 at) { return targets_[static_cast<std::size_t>(at)]; }
  I32 Page(I32 at) const { return at / PageSize(kind_); }
  I32 InPage(I32 at) const { return at % PageSize(kind_); }
  I32 First(I32 page) const { return page * PageSize(kind_); }
  I32 Length(I32 at) const { return lengths_[static_cast<std::size_t>(at)]; }
  const U8* Bytes(I32 at) const {
    return rom_.data() + Page(at) * PageSize(kind_) + InPage(at);
  }
  // The offset of a ROM page from the code's start, before which it lies.
  I32 RomAt(I32 page) const {
    return page * PageSize(kind_) - static_cast<I32>(rom_.size());
  }
  I32 TargetsAt(I32 page) const {
    return RomAt(0) - static_cast<I32>(targets_.size() * sizeof(Target)) +
           First(page) * static_cast<I32>(sizeof(Target));
  }
  I32 Pages() const { return static_cast<I32>(rom_.size()) / PageSize(kind_); }
  bool IsBanked() const { return kind_ != CartridgeKind::kPlain; }
  bool HasSlices() const { return PageSize(kind_) != 4096; }

  // Adds the offset of an address's slice to `to`, and leaves it in `slice`.
  void AddSlice(Register to, Register address, Register slice) {
    asm_.Move(slice, address);
    asm_.Shift(kShr, slice, 10);
    asm_.Do(kAnd, slice, 3);
    asm_.Load(slice, {kSlices.base, kSlices.offset, slice, 2});
    asm_.Do(kAdd, to, slice);
  }

  // Jumps to the address in AX, from the page of the record `at`.
  void JumpToAddressInAx(I32 at) {
    asm_.Jump(dispatchers_[HasSlices() ? 0 : static_cast<std::size_t>(Page(at))]);
  }

  // Leaves the code before the record `at`, with its whole block charged.
  void Exit(Condition when, I32 at) { exits_[static_cast<std::size_t>(at)].push_back(asm_.Jump(when)); }
  void Exit(I32 at) { exits_[static_cast<std::size_t>(at)].push_back(asm_.Jump()); }
  void MakeExits() {
    for (std::size_t at = 0; at < exits_.size(); ++at) {
      if (exits_[at].empty()) continue;
      for (const Distance each : exits_[at]) asm_.Bind(each);
      asm_.Move(kAx, static_cast<I32>(at));
      asm_.Jump(exit_);
    }
  }

  // Charges the block that begins at a record; `more` are cycles that came before it.
  void Enter(I32 at, I32 more = 0) {
    const Target& target = TargetOf(at);
    if (more + target.cycles) asm_.Do(kAdd, kCycles, more + target.cycles);
    if (!target.rest) return;
    asm_.Do(kSub, kLeft, target.rest);
    Exit(kNegative, at);
  }
  void GoTo(I32 at) {
    if (is_compiled_[static_cast<std::size_t>(at)]) {
      asm_.Jump(std::size_t{TargetOf(at).code});
    } else {
      jumps_[static_cast<std::size_t>(at)].push_back(asm_.Jump());
    }
  }

  const CartridgeKind kind_;
  const std::vector<U8>& rom_;
  const Instruction* const records_;
  Assembler asm_;
  std::vector<Target> targets_;
  std::vector<U8> lengths_;
  std::vector<U8> is_compiled_;
  std::vector<std::vector<Distance>> jumps_;  // to each record, until it is compiled
  std::vector<std::vector<Distance>> exits_;
  std::vector<std::size_t> dispatchers_;
  std::size_t thunks_[kThunks] = {};
  std::size_t enter_ = 0;
  std::size_t exit_ = 0;
  I32 at_ = 0;  // the record being compiled

 private:
  void MakeEnter() {
    enter_ = asm_.size();
    for (const Register each : {kBx, kBp, kR12, kR13, kR14, kR15}) asm_.Push(each);
    asm_.Do64(kSub, kSp, kStackBytes);
    asm_.Store64(kPassage, kDi);
    asm_.Load64(kRam, {kDi, offsetof(Passage, console)});
    asm_.Do64(kAdd, kRam, static_cast<I32>(kRamOffset));
    asm_.Load(kAx, {kDi, offsetof(Passage, line_start)});
    asm_.Store(kLineStart, kAx);
    asm_.Load(kAx, {kDi, offsetof(Passage, origin)});
    asm_.Store(kOrigin, kAx);
    asm_.Load(kLeft, {kDi, offsetof(Passage, left)});
    asm_.Load8(kA, ROLLOUTS_FIELD(cpu, Cpu, a));
    asm_.Load8(kX, ROLLOUTS_FIELD(cpu, Cpu, x));
    asm_.Load8(kY, ROLLOUTS_FIELD(cpu, Cpu, y));
    asm_.Load8(kCarryFlag, ROLLOUTS_FIELD(cpu, Cpu, carry));
    asm_.Load(kCycles, ROLLOUTS_FIELD(cpu, Cpu, cycles));
    asm_.Load8(kResult, ROLLOUTS_FIELD(cpu, Cpu, z));
    asm_.Load8(kAx, ROLLOUTS_FIELD(cpu, Cpu, n));
    asm_.Do(kAnd, kAx, 0x80);
    asm_.Shift(kShl, kAx, 8);
    asm_.Do(kOr, kResult, kAx);
    asm_.Jump({kDi, offsetof(Passage, target)});
  }

  // Leaves compiled code; the next address is in AX.
  void MakeExit() {
    exit_ = asm_.size();
    asm_.Load64(kDi, kPassage);
    asm_.Store({kDi, offsetof(Passage, at)}, kAx);
    asm_.Store({kDi, offsetof(Passage, left)}, kLeft);
    asm_.Load(kAx, kOrigin);
    asm_.Store({kDi, offsetof(Passage, origin)}, kAx);
    asm_.Store8(ROLLOUTS_FIELD(cpu, Cpu, a), kA);
    asm_.Store8(ROLLOUTS_FIELD(cpu, Cpu, x), kX);
    asm_.Store8(ROLLOUTS_FIELD(cpu, Cpu, y), kY);
    asm_.Store8(ROLLOUTS_FIELD(cpu, Cpu, carry), kCarryFlag);
    asm_.Store(ROLLOUTS_FIELD(cpu, Cpu, cycles), kCycles);
    asm_.Store8(ROLLOUTS_FIELD(cpu, Cpu, z), kResult);
    asm_.Move(kAx, kResult);
    asm_.Shift(kShr, kAx, 8);
    asm_.Do(kOr, kAx, kResult);
    asm_.Store8(ROLLOUTS_FIELD(cpu, Cpu, n), kAx);
    asm_.Do64(kAdd, kSp, kStackBytes);
    for (const Register each : {kR15, kR14, kR13, kR12, kBp, kBx}) asm_.Pop(each);
    asm_.Return();
  }

  void MakeThunks() {
    for (I32 reg = 0; reg < 0x40; ++reg) {
      if (const WriteFunction write = WriteOfRegister(reg)) {
        MakeThunk(reg, reinterpret_cast<U64>(write));
        asm_.Do8(kCmp, kFrameDone, U8{0});
        EndThunk();
      }
    }
    MakeThunk(kReadTia, reinterpret_cast<U64>(&ReadOfTia));
    asm_.Move8(kAx, kAx);
    EndThunk();
    MakeThunk(kRead, reinterpret_cast<U64>(&ReadAnywhere));
    asm_.Move8(kAx, kAx);
    EndThunk();
    MakeThunk(kPullSlowly, reinterpret_cast<U64>(&PullByteOf));
    asm_.Move8(kAx, kAx);
    EndThunk();

    // cycles are passed by address, because WSYNC changes them
    thunks_[kWrite] = asm_.size();
    asm_.Push(kCarryFlag);
    asm_.Push(kLeft);
    asm_.Push(kCx);
    asm_.Do(kSub, kCycles, kCx);
    asm_.Move64(kCx, kSp);
    asm_.Address64(kDi, Field(0));
    asm_.Move64(kAx, reinterpret_cast<U64>(WriteOfKind()));
    asm_.Call(kAx);
    asm_.Do(kAdd, kCycles, Place{kSp});
    asm_.Do8(kCmp, kFrameDone, U8{0});
    EndThunk();
  }

  AccessFunction WriteOfKind() const {
    switch (kind_) {
      case CartridgeKind::kF8: return WriteAnywhere<CartridgeKind::kF8>;
      case CartridgeKind::kF6: return WriteAnywhere<CartridgeKind::kF6>;
      case CartridgeKind::kE0: return WriteAnywhere<CartridgeKind::kE0>;
      case CartridgeKind::kF8SC: return WriteAnywhere<CartridgeKind::kF8SC>;
      case CartridgeKind::kF6SC: return WriteAnywhere<CartridgeKind::kF6SC>;
      default: return WriteAnywhere<CartridgeKind::kPlain>;
    }
  }

  void MakeThunk(I32 which, U64 function) {
    thunks_[which] = asm_.size();
    asm_.Push(kCarryFlag);
    asm_.Push(kLeft);
    asm_.Push(kAx);  // aligns the stack
    asm_.Address64(kDi, Field(0));
    asm_.Move64(kAx, function);
    asm_.Call(kAx);
  }
  // Leaves the x86's flags as they are.
  void EndThunk() {
    asm_.Address64(kSp, {kSp, 8});
    asm_.Pop(kLeft);
    asm_.Pop(kCarryFlag);
    asm_.Return();
  }

  // Makes, for each page, code that jumps to the address in AX. In it DI is the record, and CX and
  // DX are the parts of its target.
  void MakeDispatchers() {
    for (I32 page = 0; page < (HasSlices() ? 1 : Pages()); ++page) {
      dispatchers_.push_back(asm_.size());
      asm_.Test(kAx, 0x1000);
      const Distance is_far = asm_.Jump(kNotZero);
      asm_.Do(kOr, kAx, static_cast<I32>(kIsAddress));
      asm_.Jump(exit_);
      asm_.Bind(is_far);
      asm_.Move(kDi, kAx);
      asm_.Do(kAnd, kDi, PageSize(kind_) - 1);
      asm_.Move(kDx, kAx);
      asm_.Do(kSub, kDx, kDi);
      asm_.Store(kOrigin, kDx);
      if (HasSlices()) {
        AddSlice(kDi, kAx, kDx);
      } else if (page) {
        asm_.Do(kAdd, kDi, First(page));
      }
      // the upper half has `rest` and `cycles`
      asm_.AddressOfCode(kSi, TargetsAt(0));
      asm_.Load64(kCx, {kSi, 0, kDi, 3});
      asm_.Move(kDx, kCx);
      asm_.Shift64(kShr, kCx, 32);
      asm_.Move16(kSi, kCx);
      asm_.Shift(kShr, kCx, 16);
      asm_.Do(kAdd, kCycles, kCx);
      asm_.Do(kSub, kLeft, kSi);
      const Distance is_over = asm_.Jump(kNegative);
      asm_.AddressOfCode(kSi, 0);
      asm_.Do64(kAdd, kDx, kSi);
      asm_.Jump(kDx);
      asm_.Bind(is_over);
      asm_.Move(kAx, kDi);
      asm_.Jump(exit_);
    }
  }
};

}  // namespace rollouts::atari2600::jit
