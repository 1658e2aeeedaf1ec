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

// Of the flags N and Z a bit counts, whatever the others are.
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
         a.partial == b.partial && !std::memcmp(left.screens, right.screens, sizeof(left.screens));
}

}  // namespace

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
