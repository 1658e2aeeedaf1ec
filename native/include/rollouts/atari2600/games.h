// SPDX-License-Identifier: Apache-2.0
// Facts about the games that ale-py supports: what their cartridges need, and what their modes are.
#pragma once

#include "rollouts/atari2600/console.h"

namespace rollouts::atari2600 {

// The keys that choose a mode, one group after the other: a letter, a number of frames, and how many
// times if not once. s: SELECT, then one frame without it; r: RESET; n: nothing; f: FIRE.
struct GameMode {
  I32 number;
  const char* keys;
};

struct Game {
  const char* name;  // of ale-py's ROM file, without ".bin"
  U64 hash;          // HashRom of the ROM
  U32 rom_size;      // bytes
  CartridgeKind kind;
  U8 pal;
  U8 hmove_blanks;
  U8 paddles;      // played with a paddle, else with a joystick
  U8 second_port;  // at the right port
  I32 first_line;
  I32 height;        // of the screen
  U32 actions;       // bit a: ale-py's minimal set has action a
  U32 difficulties;  // bit d: difficulty d may be chosen
  I32 num_modes;
  const GameMode* modes;  // the first one is the default
  const char* start_keys; // what ends a reset, as GameMode::keys
};

// FNV-1a of 64 bits.
inline ROLLOUTS_HD U64 HashRom(const U8* rom, U32 size) {
  U64 hash = 0xcbf29ce484222325u;
  for (U32 i = 0; i < size; ++i) hash = (hash ^ rom[i]) * 0x100000001b3u;
  return hash;
}

// The game that a ROM is, null for a ROM that is none of them (or is damaged).
const Game* FindGame(const U8* rom, U32 size);

// All of them, by name.
const Game* Games();
I32 NumGames();

}  // namespace rollouts::atari2600
