// SPDX-License-Identifier: Apache-2.0
// A ROM that is run as it was decoded or compiled, and as it is, for a test to call.
#include <cstring>
#include <memory>

#include "rollouts/atari2600/decoded_rom.h"
#include "rollouts/atari2600/frame.h"
#include "rollouts/atari2600/mersenne.h"

namespace {

using namespace rollouts::atari2600;

struct Machine {
  Console console;
  U8 screens[2][kWidth * kMaxHeight] = {};
};

void PlayFrame(Machine& machine) {
  for (int i = 0; i < 2; ++i) machine.console.screens[i] = machine.screens[i];
  EmulateFrame(machine.console);
}

// One bit counts in each of the flags N and Z, whatever the others are.
Cpu Flagged(Cpu cpu) {
  cpu.n &= 0x80;
  cpu.z = cpu.z != 0;
  return cpu;
}

bool IsSame(const Machine& left, const Machine& right) {
  const Console& a = left.console;
  const Console& b = right.console;
  const Cpu cpu = Flagged(a.cpu);
  const Cpu other = Flagged(b.cpu);
  return !std::memcmp(&cpu, &other, sizeof(cpu)) &&
         !std::memcmp(&a.riot, &b.riot, sizeof(a.riot)) &&
         !std::memcmp(&a.tia, &b.tia, sizeof(a.tia)) &&
         !std::memcmp(a.cartridge.slices, b.cartridge.slices, sizeof(a.cartridge.slices)) &&
         !std::memcmp(a.cartridge.ram, b.cartridge.ram, sizeof(a.cartridge.ram)) &&
         a.partial == b.partial && a.jammed == b.jammed && a.cartridge.bank == b.cartridge.bank &&
         (a.bus == b.bus || (a.cpu.pc & 0x1000)) && !std::memcmp(left.screens, right.screens, sizeof(left.screens));
}

}  // namespace

// A number of those at which something begins or ends, or any.
U8 Edge(Mersenne& random) {
  constexpr U8 kEdges[] = {0x00, 0x01, 0x02, 0x7e, 0x7f, 0x80, 0x81, 0xdf, 0xe0, 0xf6, 0xf9, 0xfd, 0xfe, 0xff};
  const U32 drawn = Draw(random);
  return drawn % 2 ? static_cast<U8>(drawn >> 8) : kEdges[(drawn >> 8) % sizeof(kEdges)];
}

void RunPlain(Console& c, I32 end) {
  switch (c.board.kind) {
    case CartridgeKind::kF8: return Execute<CartridgeKind::kF8>(c, end);
    case CartridgeKind::kF6: return Execute<CartridgeKind::kF6>(c, end);
    case CartridgeKind::kE0: return Execute<CartridgeKind::kE0>(c, end);
    case CartridgeKind::kF8SC: return Execute<CartridgeKind::kF8SC>(c, end);
    case CartridgeKind::kF6SC: return Execute<CartridgeKind::kF6SC>(c, end);
    default: return Execute<CartridgeKind::kPlain>(c, end);
  }
}

// The first frame after which both differ, -1 if none does: memory and registers are random. -2: the
// machine does not let code be compiled.
extern "C" int first_difference(int kind, const U8* rom, int size, unsigned seed, int frames,
                                int compiles) {
  Mersenne random;
  Seed(random, seed);
  auto plain = std::make_unique<Machine>();
  Console& c = plain->console;
  c.board.kind = static_cast<CartridgeKind>(kind);
  c.cartridge.rom = rom;
  for (U32 i = 0; i < 4; ++i) c.cartridge.slices[i] = (i * 1024) & static_cast<U32>(size - 1);
  for (U8& byte : c.riot.ram) byte = static_cast<U8>(Draw(random));
  for (U8& byte : c.cartridge.ram) byte = static_cast<U8>(Draw(random));
  c.riot.timer = static_cast<U8>(Draw(random));
  c.riot.shift = 6;
  c.cpu.a = static_cast<U8>(Draw(random));
  c.cpu.x = static_cast<U8>(Draw(random));
  c.cpu.y = static_cast<U8>(Draw(random));
  c.cpu.sp = static_cast<U8>(Draw(random));
  c.cpu.pc = static_cast<U16>(0x1000 | Draw(random));
  auto other = std::make_unique<Machine>(*plain);
  const DecodedRom decoded(c.board.kind, rom, size, compiles);
  other->console.cartridge.decoded = decoded.get();
  if (!decoded.get()) return 0;
  if (decoded.is_compiled() != (compiles != 0)) return -2;
  for (int frame = 0; frame < frames; ++frame) {
    PlayFrame(*plain);
    PlayFrame(*other);
    if (!IsSame(*plain, *other)) return frame;
  }
  return -1;
}

// The first of some cases that differ, -1 if none does: a few instructions from a place near the ends of
// pages, of the ROM or of its memory, with registers and pointers that are at the ends of theirs. Changes
// the ROM: returns and addresses lead to such places, too.
extern "C" int first_wrong_case(int kind, U8* rom, int size, unsigned seed, int cases, int compiles) {
  Mersenne random;
  Seed(random, seed);
  for (int i = 0; i < size / 16; ++i) {
    const U32 at = Draw(random) % static_cast<U32>(size);
    const bool is_end = Draw(random) % 2;
    rom[is_end ? ((at & ~0x3ffu) - Draw(random) % 6) & static_cast<U32>(size - 1) : at] = Edge(random);
  }
  // a loop that seems to wait, under a cartridge's memory
  constexpr U8 kLoop[] = {0xca, 0xd0, 0xfd};
  std::memcpy(rom + 0xff, kLoop, sizeof(kLoop));
  const DecodedRom decoded(static_cast<CartridgeKind>(kind), rom, size, compiles);
  for (int i = 0; i < cases; ++i) {
    auto plain = std::make_unique<Machine>();
    Console& c = plain->console;
    c.board.kind = static_cast<CartridgeKind>(kind);
    c.cartridge.rom = rom;
    const U32 bank = Draw(random) % 4 * 4096 & static_cast<U32>(size - 1) & ~0xfffu;
    for (U32 k = 0; k < 4; ++k) c.cartridge.slices[k] = (bank + k * 1024) & static_cast<U32>(size - 1);
    c.cartridge.bank = static_cast<U8>(bank / 4096);
    for (U8& byte : c.riot.ram) byte = Edge(random);
    for (U8& byte : c.cartridge.ram) byte = Edge(random);
    c.riot.timer = Edge(random);
    c.riot.shift = Draw(random) % 2 ? 6 : 0;
    for (U8* each : {&c.cpu.a, &c.cpu.x, &c.cpu.y, &c.cpu.sp, &c.cpu.n}) *each = Edge(random);
    c.cpu.z = Draw(random) % 2 ? c.cpu.n : 0;
    c.cpu.carry = Draw(random) % 2;
    c.cpu.decimal = Draw(random) % 4 == 0;
    BeginFrame(c);
    c.cpu.cycles = static_cast<I32>(Draw(random) % 23000);
    const U32 near = Draw(random) % 2 ? Draw(random) : (Draw(random) & 0x1c00) + Edge(random) - 8;
    c.cpu.pc = Draw(random) % 16 ? static_cast<U16>(0x1000 | near) : 0x1100;
    auto other = std::make_unique<Machine>(*plain);
    for (Machine* each : {plain.get(), other.get()}) {
      for (int k = 0; k < 2; ++k) each->console.screens[k] = each->screens[k];
    }
    const I32 end = static_cast<I32>(Draw(random) % 12) + 1;
    RunPlain(c, end);
    decoded.get()->run(other->console, *decoded.get(), end);
    if (!IsSame(*plain, *other)) return i;
  }
  return -1;
}
