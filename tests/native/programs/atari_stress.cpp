// SPDX-License-Identifier: Apache-2.0
// Random ROMs as machine code: a sanitizer sees what makes it, what it calls, and where it would leave a
// console's memory through either.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "../../atari2600/decoded.cpp"

namespace {

struct Kind {
  CartridgeKind kind;
  I32 size;
};
constexpr Kind kKinds[] = {{CartridgeKind::kPlain, 2048}, {CartridgeKind::kPlain, 4096},
                           {CartridgeKind::kF8, 8192},    {CartridgeKind::kF6, 16384},
                           {CartridgeKind::kE0, 8192},    {CartridgeKind::kF8SC, 8192},
                           {CartridgeKind::kF6SC, 16384}};

// Random bytes, many of which are instructions that reach RAM, the TIA and the cartridge.
std::vector<U8> RandomRom(I32 size, Mersenne& random) {
  constexpr U8 kCommon[] = {0x85, 0xa5, 0x95, 0xb5, 0xe6, 0x66, 0xb1, 0x91, 0xa1, 0x48, 0x08, 0x28,
                            0xad, 0xbd, 0x9d, 0x20, 0x60, 0x6c, 0xca, 0xd0, 0x10, 0x69, 0xe9, 0xf8};
  std::vector<U8> rom(static_cast<std::size_t>(size));
  for (U8& byte : rom) {
    byte = static_cast<U8>(Draw(random));
    if (Draw(random) % 4 == 0) byte = kCommon[Draw(random) % sizeof(kCommon)];
    // what stops a CPU
    if ((byte & 0x1f) == 0x12 || (byte & 0x9f) == 0x02) byte = 0xea;
  }
  return rom;
}

void Fail(const char* what, I32 size, U32 seed) {
  std::fprintf(stderr, "%s: ROM %u of %d bytes\n", what, seed, size);
  std::exit(1);
}

void PlayRoms(int roms) {
  for (const Kind& each : kKinds) {
    Mersenne random;
    Seed(random, static_cast<U32>(each.size) + static_cast<U32>(each.kind));
    for (int i = 0; i < roms; ++i) {
      const std::vector<U8> rom = RandomRom(each.size, random);
      const U32 seed = Draw(random);
      for (const int compiles : {0, 1}) {
        const int found = first_difference(static_cast<int>(each.kind), rom.data(), each.size, seed, 3,
                                           compiles);
        if (found != -1) Fail(compiles ? "compiled" : "decoded", each.size, seed);
      }
    }
  }
}

// One compiled ROM, run by several threads.
void PlayTogether() {
  for (const Kind& each : kKinds) {
    Mersenne random;
    Seed(random, static_cast<U32>(each.size));
    const std::vector<U8> rom = RandomRom(each.size, random);
    const DecodedRom decoded(each.kind, rom.data(), each.size, true);
    std::vector<std::unique_ptr<Machine>> machines;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      auto machine = std::make_unique<Machine>();
      Console& c = machine->console;
      c.board.kind = each.kind;
      c.cartridge.rom = rom.data();
      c.cartridge.decoded = decoded.get();
      for (U32 slice = 0; slice < 4; ++slice) {
        c.cartridge.slices[slice] = (slice * 1024) & static_cast<U32>(each.size - 1);
      }
      c.cpu.pc = 0x1000;
      machines.push_back(std::move(machine));
    }
    for (auto& machine : machines) {
      threads.emplace_back([&machine] {
        for (int frame = 0; frame < 20; ++frame) PlayFrame(*machine);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (auto& machine : machines) {
      if (!IsSame(*machines[0], *machine)) Fail("threads", each.size, 0);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::printf("roms\nthreads\n");
    return 0;
  }
  if (!std::strcmp(argv[1], "roms")) PlayRoms(16);
  if (!std::strcmp(argv[1], "threads")) PlayTogether();
  return std::strcmp(argv[1], "roms") && std::strcmp(argv[1], "threads");
}
