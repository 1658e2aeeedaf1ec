// SPDX-License-Identifier: Apache-2.0
// Facts about the games that ale-py supports: what their cartridges need, and how to choose their
// modes.
#pragma once

#include "rollouts/atari2600/console.h"

namespace rollouts::atari2600 {

// The controllers of players.
enum class Controls : U8 { kJoystick, kRightJoystick, kPaddles, kSwappedPaddles };

struct Game {
  const char* name;  // the name of ale-py's ROM file, without ".bin"
  U64 hash;          // HashRom of the ROM
  U32 rom_size;      // bytes
  CartridgeKind kind;
  U8 pal;
  U8 hmove_blanks;
  Controls controls;
  I32 first_line;
  I32 height;        // the screen's
  I32 most_turned;   // greatest resistance of a paddle
  U32 actions;       // bit a: ale-py's minimal set has action a
  U32 difficulties;  // bit d: difficulty d may be chosen
  // Every mode's number, a colon, and the keys that choose it and start the game; semicolons
  // between modes. A key is a letter, a number of frames, and, for several presses, "x" with their
  // number. The letters: S: SELECT, then one frame without it; s: SELECT for up to 255 frames more,
  // at random; R: RESET; n: nothing; f: FIRE; u, d, l, r: UP, DOWN, LEFT, RIGHT; j: UP and FIRE. A
  // key with "@address=value" is pressed until RAM has that value there, and not at all if it has
  // it already; "@address&mask=value" compares some bits. A "?" at the end makes the key a sticky
  // action; with "@", each such press is followed by a frame of nothing, sticky as well. The first
  // mode is the default.
  const char* modes;
};

// FNV-1a of 64 bits.
inline ROLLOUTS_HD U64 HashRom(const U8* rom, U32 size) {
  U64 hash = 0xcbf29ce484222325u;
  for (U32 i = 0; i < size; ++i) hash = (hash ^ rom[i]) * 0x100000001b3u;
  return hash;
}

inline constexpr Game kGames[] = {
#include "rollouts/atari2600/games.inc"
};

// The game of a ROM, or null if the ROM is damaged or its game is not supported.
inline const Game* FindGame(const U8* rom, U32 size) {
  const U64 hash = HashRom(rom, size);
  for (const Game& game : kGames) {
    if (game.rom_size == size && game.hash == hash) return &game;
  }
  return nullptr;
}

// The keys of a mode, or null for a mode that the game does not have.
inline ROLLOUTS_HD const char* FindKeys(const Game& game, I32 mode) {
  const char* at = game.modes;
  while (*at) {
    I32 number = 0;
    for (; *at != ':'; ++at) number = number * 10 + (*at - '0');
    ++at;
    if (number == mode) return at;
    while (*at && *at != ';') ++at;
    if (*at == ';') ++at;
  }
  return nullptr;
}

}  // namespace rollouts::atari2600
