// SPDX-License-Identifier: Apache-2.0
// A console with a game in it, as ale-py has it: switched on, reset into a mode, played with its 18
// actions. A GameConsole is plain data: a copy of it is a snapshot, valid in the same process (in
// another one: after Attach).
#pragma once

#include "rollouts/atari2600/frame.h"
#include "rollouts/atari2600/games.h"
#include "rollouts/atari2600/mersenne.h"

namespace rollouts::atari2600 {

struct GameConsole {
  Console console;
  const Game* game = nullptr;  // borrowed, as the ROM is
  Mersenne system_random;      // draws where the timer stands after a reset; seeded the same always
  Mersenne sticky_random;      // draws whether an action is repeated
  I32 mode = 0;
  I32 difficulty = 0;
  I32 last_action = 0;  // what was done in the frame before
  I32 resistances[2] = {};  // of the two paddles at the left port
  U8 screens[2][kWidth * kMaxHeight] = {};
};

// Points a copy from elsewhere to its game and ROM: `rom` has game.rom_size bytes and outlives `g`.
inline ROLLOUTS_HD void Attach(GameConsole& g, const Game& game, const U8* rom);

// What ale-py's loadROM does but for the reset it ends with. `random_seed` is that of the sticky
// actions.
inline ROLLOUTS_HD void PowerOn(GameConsole& g, const Game& game, const U8* rom, U32 random_seed);

// ale-py's reset_game: `mode` is one of the game's, `difficulty` a bit of game.difficulties. A reset
// draws random numbers, and RAM is kept: the second one differs from the first, as ale-py's does.
inline ROLLOUTS_HD void Reset(GameConsole& g, I32 mode, I32 difficulty);

// One frame with an action of 0..17. With `repeat_probability`, the action of the frame before is
// taken instead (sticky actions). A paddle turns by 23000 * strength.
inline ROLLOUTS_HD void Act(GameConsole& g, I32 action, float repeat_probability, float strength = 1);

// Takes over all of `start` but the random numbers of sticky actions: an episode from a start that
// was reset once.
inline ROLLOUTS_HD void Restart(GameConsole& g, const GameConsole& start);

// (128,) bytes.
inline ROLLOUTS_HD const U8* Ram(const GameConsole& g) { return g.console.riot.ram; }

// (game->height, 160) palette indices.
inline ROLLOUTS_HD const U8* Screen(const GameConsole& g) { return g.screens[g.console.shown]; }

}  // namespace rollouts::atari2600
