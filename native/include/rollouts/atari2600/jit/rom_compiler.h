// SPDX-License-Identifier: Apache-2.0
// Makes machine code of a decoded ROM (decoded.h), for every byte of it as if an instruction began
// there. A block is all instructions up to a jump; it is charged with its instructions and cycles
// when it is entered. Rare instructions are left to the caller: the code is left before them.
#pragma once

#include "rollouts/atari2600/jit/instruction_writer.h"

namespace rollouts::atari2600::jit {

class RomCompiler : private InstructionWriter {
 public:
  RomCompiler(CartridgeKind kind, const std::vector<U8>& rom, const Instruction* records)
      : InstructionWriter(kind, rom, records) {
    for (I32 page = 0; page < Pages(); ++page) Measure(page);
    // code that is reached from the ROM's start lies close together
    for (const I32 at : Reached()) CompileFrom(at);
    for (I32 at = 0; at < static_cast<I32>(targets_.size()); ++at) CompileFrom(at);
    MakeExits();
  }

  const std::vector<Target>& targets() const { return targets_; }
  const Assembler& code() const { return asm_; }
  std::size_t enter() const { return enter_; }

 private:
  // Computes the cycles from each record to the end of its block.
  void Measure(I32 page) {
    for (I32 i = PageSize(kind_) - 1; i >= 0; --i) {
      const I32 at = First(page) + i;
      const Instruction& op = Record(at);
      Target& target = TargetOf(at);
      target.rest = op.rest;
      target.cycles = op.cycles;
      if (op.handler == kStep) continue;
      lengths_[static_cast<std::size_t>(at)] = static_cast<U8>(LengthOf(*Bytes(at)));
      if (EndsBlock(op)) continue;
      target.cycles = static_cast<U16>(op.cycles + TargetOf(at + Length(at)).cycles);
    }
  }

  // The records that are found by following all jumps, in the ROM's order.
  std::vector<I32> Reached() const {
    const I32 pages = Pages();
    std::vector<U8> is_reached(targets_.size());
    std::vector<I32> left;
    const auto reach = [&](I32 at) {
      if (is_reached[static_cast<std::size_t>(at)]) return;
      is_reached[static_cast<std::size_t>(at)] = 1;
      left.push_back(at);
    };
    const auto reach_address = [&](I32 from, I32 address) {
      const I32 at = address & (PageSize(kind_) - 1);
      if (!HasSlices()) return reach(First(Page(from)) + at);
      for (I32 page = 0; page < pages; ++page) reach(First(page) + at);
    };
    for (I32 page = 0; page < pages; ++page) {
      const I32 vector = First(page) + PageSize(kind_) - 4;
      reach_address(vector, Bytes(vector)[0] | Bytes(vector)[1] << 8);
    }
    while (!left.empty()) {
      const I32 at = left.back();
      left.pop_back();
      const Instruction& op = Record(at);
      const I32 behind = InPage(at) + LengthOf(*Bytes(at));
      if (op.handler == kJump || op.handler == kCall) reach_address(at, op.operand);
      if (op.jump) reach(at + op.jump);
      const bool goes_on = op.handler != kJump && op.handler != kJumpIndirect &&
                           op.handler != kReturn && behind < PageSize(kind_);
      if (!goes_on) continue;
      // an access to the last bytes may switch to another page
      for (I32 page = 0; page < pages; ++page) {
        if (op.handler == kStep || page == Page(at)) reach(First(page) + behind);
      }
    }
    std::vector<I32> reached;
    for (I32 at = 0; at < static_cast<I32>(is_reached.size()); ++at) {
      if (is_reached[static_cast<std::size_t>(at)]) reached.push_back(at);
    }
    return reached;
  }

  // Compiles a record and its successors, until one is compiled already or has no successor.
  void CompileFrom(I32 at) {
    if (is_compiled_[static_cast<std::size_t>(at)]) return;
    for (;;) {
      TargetOf(at).code = static_cast<U32>(asm_.size());
      is_compiled_[static_cast<std::size_t>(at)] = 1;
      for (const Distance each : jumps_[static_cast<std::size_t>(at)]) asm_.Bind(each);
      at_ = at;
      if (!Compile(Record(at))) return;
      at += Length(at);
      if (is_compiled_[static_cast<std::size_t>(at)]) return GoTo(at);
    }
  }
};

}  // namespace rollouts::atari2600::jit
