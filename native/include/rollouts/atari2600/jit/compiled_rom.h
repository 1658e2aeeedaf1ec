// SPDX-License-Identifier: Apache-2.0
// A ROM as machine code, and the loop that runs it.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "rollouts/atari2600/jit/rom_compiler.h"

namespace rollouts::atari2600::jit {

// Owns the targets, the ROM and the code, in memory that is first written and then executed.
class CompiledRom {
 public:
  // Sets is_runnable() to false where there is no memory for it, or the memory must not be
  // executed.
  CompiledRom(CartridgeKind kind, const U8* rom, I32 rom_size, const Instruction* records) {
    std::vector<U8> pages(static_cast<std::size_t>(PagesOf(kind, rom_size) * PageSize(kind)));
    for (std::size_t i = 0; i < pages.size(); ++i) {
      pages[i] = rom[i % static_cast<std::size_t>(rom_size)];
    }
    const RomCompiler compiler(kind, pages, records);
    const std::size_t targets = compiler.targets().size() * sizeof(Target);
    const std::size_t before = targets + pages.size();
    size_ = before + compiler.code().size();
    void* const memory =
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    memory_ = static_cast<U8*>(memory);
    std::memcpy(memory_, compiler.targets().data(), targets);
    std::memcpy(memory_ + targets, pages.data(), pages.size());
    std::memcpy(memory_ + before, compiler.code().data(), compiler.code().size());
    if (mprotect(memory_, size_, PROT_READ | PROT_EXEC)) return;
    code_ = memory_ + before;
    const U8* const enter = code_ + compiler.enter();
    std::memcpy(&enter_, &enter, sizeof(enter_));
  }
  ~CompiledRom() {
    if (memory_) munmap(memory_, size_);
  }
  CompiledRom(const CompiledRom&) = delete;
  CompiledRom& operator=(const CompiledRom&) = delete;

  bool is_runnable() const { return enter_ != nullptr; }
  const Target& target(I32 at) const { return reinterpret_cast<const Target*>(memory_)[at]; }

  // Runs code from a record on.
  void Enter(Passage& passage, I32 at) const {
    passage.target = code_ + target(at).code;
    enter_(&passage);
  }

 private:
  using EnterFunction = void (*)(Passage*);

  U8* memory_ = nullptr;
  std::size_t size_ = 0;
  const U8* code_ = nullptr;
  EnterFunction enter_ = nullptr;
};

// Handles the branch at the end of a loop that waits for the timer: see SkipLoop.
inline void EndWait(Console& c, const Instruction& op, I32& left) {
  Cpu r = c.cpu;
  const bool while_positive = op.handler == kWaitPlus;
  r.cycles += op.cycles;
  I32 next = 2;
  if (while_positive ? !(r.n & 0x80) : r.z) {
    const I32 taken = 1 + (op.operand >> 15);
    r.cycles += taken;
    I32 count = 0;
    SkipLoop(c.riot, r, c.cartridge.rom + (op.operand & 0x7fff), while_positive, taken, r.cycles, count,
             left);
    left -= count;
    next = op.jump;
  }
  r.pc = static_cast<U16>(r.pc + next);
  c.cpu = r;
}

// Replaces Execute for a ROM that was compiled.
template <CartridgeKind kKind>
inline void ExecuteCompiled(Console& c, const Decoded& rom, I32 end) {
  const CompiledRom& code = *rom.compiled;
  Passage passage;
  passage.console = &c;
  passage.line_start = c.tia.frame_start / 3;
  for (I32 left = end;;) {
    const I32 pc = c.cpu.pc;
    if (pc & 0x1000) {
      // in the ROM: the block is charged, and the code runs until it is left
      const I32 page = PageOf<kKind>(c.cartridge, pc) * PageSize(kKind);
      const I32 in_page = pc & (PageSize(kKind) - 1);
      const Target& target = code.target(page + in_page);
      if (left < target.rest) return Execute<kKind>(c, left);
      passage.left = left - target.rest;
      passage.origin = pc - in_page;
      c.cpu.cycles += target.cycles;
      code.Enter(passage, page + in_page);
      left = passage.left;
      // left before an address, whose record has to be found
      if (passage.at & kIsAddress) {
        c.cpu.pc = static_cast<U16>(passage.at);
        continue;
      }
      // left before a record, whose block is credited back
      const I32 at = static_cast<I32>(passage.at);
      const Instruction& op = rom.records[at];
      c.cpu.pc = static_cast<U16>(passage.origin + at % PageSize(kKind));
      c.cpu.cycles -= code.target(at).cycles;
      if (c.tia.frame_done) return;
      if (left < 0) return Execute<kKind>(c, left + op.rest);
      if (op.handler == kWaitPlus || op.handler == kWaitNotEqual) {
        EndWait(c, op, left);
        continue;
      }
      left += op.rest;
    }
    // what the code left to the caller
    if (left == 0) return;
    --left;
    Execute<kKind>(c, 1);
    if (c.tia.frame_done || c.jammed) return;
  }
}

}  // namespace rollouts::atari2600::jit
