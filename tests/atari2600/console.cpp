// SPDX-License-Identifier: Apache-2.0
// Our Atari 2600 for a test to call: a console with its ROM and its screens.
#include <cstring>
#include <exception>
#include <string_view>
#include <vector>

#include "ale_snapshot.h"
#include "rollouts/atari2600/frame.h"

namespace {

using namespace rollouts::atari2600;

struct Machine {
  Console console;
  std::vector<U8> rom;
  std::vector<U8> screens[2];
};

}  // namespace

extern "C" {

Machine* machine_new(const U8* rom, int size) {
  auto* machine = new Machine;
  // cartridges are read in banks of 4 KiB: smaller ones are mirrored by their kind
  machine->rom.assign(rom, rom + size);
  machine->rom.resize(static_cast<std::size_t>(size) + 16384);
  for (int i = 0; i < 2; ++i) {
    machine->screens[i].resize(static_cast<std::size_t>(kWidth) * 256);
    machine->console.screens[i] = machine->screens[i].data();
  }
  machine->console.cartridge.rom = machine->rom.data();
  return machine;
}

void machine_delete(Machine* machine) { delete machine; }

// 0, or 1 for a state that was not understood.
int machine_load(Machine* machine, const char* state, int size) {
  try {
    rollouts::ReadAleSnapshot({state, static_cast<std::size_t>(size)}, machine->console);
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

// Facts of a game that the state does not say: which television, and whether HMOVE blackens pixels.
void machine_board(Machine* machine, int is_pal, int hmove_blanks) {
  machine->console.board.pal = static_cast<U8>(is_pal);
  machine->console.board.hmove_blanks = static_cast<U8>(hmove_blanks);
  machine->console.board.max_lines = is_pal ? 342 : 290;
}

// One frame: with low bits of `port_a` where a joystick is pushed, and so on.
void machine_step(Machine* machine, int port_a, int fire_0, int fire_1, const int* paddles) {
  Inputs& inputs = machine->console.inputs;
  inputs.port_a = static_cast<U8>(port_a);
  inputs.fire[0] = static_cast<U8>(fire_0);
  inputs.fire[1] = static_cast<U8>(fire_1);
  for (int i = 0; i < 4; ++i) inputs.paddles[i] = paddles[i];
  EmulateFrame(machine->console);
}

void machine_show(const Machine* machine, U8* ram, U8* screen, int screen_size) {
  std::memcpy(ram, machine->console.riot.ram, sizeof(machine->console.riot.ram));
  std::memcpy(screen, machine->console.screens[machine->console.shown],
              static_cast<std::size_t>(screen_size));
}

// Instructions of a program at 0x1000, in one go or one by one. `after` is what the CPU then holds:
// pc, a, x, y, n, z, cycles, and whether the timer was read after it had expired.
void run_program(const U8* program, int size, int count, int one_by_one, int* after) {
  std::vector<U8> rom(program, program + size);
  rom.resize(4096);
  Console console;
  console.cartridge.rom = rom.data();
  for (U32 i = 0; i < 4; ++i) console.cartridge.slices[i] = i * 1024;
  console.cpu.pc = 0x1000;
  if (one_by_one) {
    for (int i = 0; i < count; ++i) Execute<CartridgeKind::kPlain>(console, 1);
  } else {
    Execute<CartridgeKind::kPlain>(console, count);
  }
  const Cpu& cpu = console.cpu;
  const int held[] = {cpu.pc, cpu.a, cpu.x, cpu.y, cpu.n, cpu.z, cpu.cycles,
                      console.riot.read_expired};
  std::memcpy(after, held, sizeof(held));
}

}  // extern "C"
