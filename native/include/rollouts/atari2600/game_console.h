// SPDX-License-Identifier: Apache-2.0
// A console with a game in it, as ale-py emulates it: switched on, reset into a mode, played with
// its 18 actions. A GameConsole is plain data: a copy of it is a snapshot, valid in the same
// process (and in another one after Attach).
#pragma once

#include "rollouts/atari2600/frame.h"
#include "rollouts/atari2600/games.h"
#include "rollouts/atari2600/mersenne.h"

namespace rollouts::atari2600 {

inline constexpr U32 kSystemSeed = 4753849;  // ale-py's setting system_random_seed
// a paddle's resistance: the least, and its change in a frame in which the paddle turns
inline constexpr I32 kLeastTurned = 27450;
inline constexpr I32 kTurn = 23000;
inline constexpr I32 kMaxPresses = 1000;  // presses of a key for a mode: dozens are enough

struct GameConsole {
  Console console;
  const Game* game = nullptr;  // borrowed, as the ROM is
  Mersenne system_random;      // draws the timer's value at a reset; always has the same seed
  Mersenne sticky_random;      // draws whether an action is repeated
  I32 last_action = 0;  // the action of the frame before
  I32 resistances[2] = {};  // the two paddles of the left port
  U8 screens[2][kWidth * kMaxHeight] = {};
};

// Points a copied console to its game and ROM. `rom` has game.rom_size bytes and must outlive `g`,
// as must its decoded form (DecodedRom), which a host may pass.
inline ROLLOUTS_HD void Attach(GameConsole& g, const Game& game, const U8* rom,
                               const Decoded* decoded = nullptr) {
  g.game = &game;
  g.console.cartridge.rom = rom;
  g.console.cartridge.decoded = decoded;
}

// (128,) bytes.
inline ROLLOUTS_HD const U8* Ram(const GameConsole& g) { return g.console.riot.ram; }

// (128,) bytes of the cartridge, where it has memory.
inline ROLLOUTS_HD const U8* CartridgeRam(const GameConsole& g) { return g.console.cartridge.ram; }

// (game->height, 160) palette indices.
inline ROLLOUTS_HD const U8* Screen(const GameConsole& g) { return g.screens[g.console.shown]; }

// Runs one frame with the inputs that are set.
inline ROLLOUTS_HD void RunFrame(GameConsole& g) {
  g.console.screens[0] = g.screens[0];
  g.console.screens[1] = g.screens[1];
  EmulateFrame(g.console);
}

// Directions of an action of 0..17.
struct Push {
  U8 up, right, left, down, fire;
};

inline ROLLOUTS_HD Push PushOf(I32 action) {
  constexpr U8 kPushes[10] = {0, 0, 1, 2, 4, 8, 3, 5, 10, 12};  // up, right, left, down
  const U8 bits = kPushes[action < 10 ? action : action - 8];
  return {static_cast<U8>(bits & 1), static_cast<U8>((bits >> 1) & 1),
          static_cast<U8>((bits >> 2) & 1), static_cast<U8>((bits >> 3) & 1),
          static_cast<U8>(action == 1 || action >= 10)};
}

// Cycles until a paddle's capacitor is full.
inline ROLLOUTS_HD I32 PaddleCycles(I32 resistance) {
  return static_cast<I32>(1.6 * resistance * 1e-8 * 1.19e6);
}

inline ROLLOUTS_HD void SetHands(GameConsole& g, I32 action) {
  Inputs& inputs = g.console.inputs;
  const Push push = PushOf(action);
  inputs.port_a = 0xff;
  inputs.fire[0] = inputs.fire[1] = 0x80;
  if (g.game->controls >= Controls::kPaddles) {
    // in Pong the first player has the second paddle, and there are two more
    const bool swapped = g.game->controls == Controls::kSwappedPaddles;
    if (push.fire) inputs.port_a = swapped ? 0xbf : 0x7f;
    inputs.paddles[swapped] = PaddleCycles(g.resistances[0]);
    inputs.paddles[!swapped] = PaddleCycles(g.resistances[1]);
    inputs.paddles[2] = inputs.paddles[3] = swapped ? kFullPaddle : kEmptyPaddle;
    return;
  }
  for (I32& paddle : inputs.paddles) paddle = kEmptyPaddle;
  const bool right = g.game->controls == Controls::kRightJoystick;
  const I32 pushed = push.up | push.down << 1 | push.left << 2 | push.right << 3;
  inputs.port_a = static_cast<U8>(0xff ^ (right ? pushed : pushed << 4));
  if (push.fire) inputs.fire[right] = 0;
}

inline ROLLOUTS_HD I32 ParseNumber(const char*& text) {
  I32 number = 0;
  for (; *text >= '0' && *text <= '9'; ++text) number = number * 10 + (*text - '0');
  return number;
}

inline ROLLOUTS_HD U16 ResetVector(const Console& c) {
  const Cartridge& cartridge = c.cartridge;
  const U32 last = c.board.kind == CartridgeKind::kFE ? 4092 : cartridge.slices[3] + 1020;
  return static_cast<U16>(cartridge.rom[last] | (cartridge.rom[last + 1] << 8));
}

inline ROLLOUTS_HD void CenterPaddles(GameConsole& g) {
  g.resistances[0] = g.resistances[1] = (kLeastTurned + g.game->most_turned) / 2;
}

// Sets the chips as a reset leaves them; RAM stays.
inline ROLLOUTS_HD void ResetChips(GameConsole& g) {
  Console& c = g.console;
  Cartridge& cartridge = c.cartridge;
  c.cpu = Cpu{};
  c.tia = Tia{};
  c.partial = c.odd_lines = c.shown = c.bus = c.jammed = 0;
  FillBytes(g.screens, 0, sizeof(g.screens));

  const Riot old = c.riot;
  c.riot = Riot{};
  CopyBytes(c.riot.ram, old.ram, sizeof(old.ram));
  c.riot.timer = static_cast<U8>(25 + Draw(g.system_random) % 75);
  c.riot.shift = 6;

  switch (g.game->kind) {
    case CartridgeKind::kPlain:
      for (U32 i = 0; i < 4; ++i) cartridge.slices[i] = (i * 1024) & (g.game->rom_size - 1);
      break;
    case CartridgeKind::kE0:
      for (I32 i = 0; i < 4; ++i) SelectSlice(cartridge, i, 4 + i);
      break;
    case CartridgeKind::kF6:
    case CartridgeKind::kF6SC: SelectBank(cartridge, 0); break;
    default: SelectBank(cartridge, 1); break;
  }
  if (g.game->kind == CartridgeKind::kF8SC || g.game->kind == CartridgeKind::kF6SC) {
    for (U8& byte : cartridge.ram) byte = static_cast<U8>(Draw(g.system_random));
  }
  cartridge.dpc = Dpc{};
  c.cpu.pc = ResetVector(c);
}

inline ROLLOUTS_HD void RunFrames(GameConsole& g, I32 frames) {
  for (I32 i = 0; i < frames; ++i) RunFrame(g);
}

// Draws whether sticky actions replace an action by the last one.
inline ROLLOUTS_HD I32 DrawAction(GameConsole& g, I32 action, float repeat_probability) {
  // one random number for each player
  if (DrawUnit(g.sticky_random) < static_cast<double>(repeat_probability)) action = g.last_action;
  Draw(g.sticky_random);
  g.last_action = action;
  return action;
}

// Presses SELECT for some more frames, which are drawn, then releases it, then takes an action that
// does nothing.
inline ROLLOUTS_HD void PressRandomly(GameConsole& g, I32 frames, float repeat_probability) {
  U8& switches = g.console.inputs.switches;
  const U8 released = switches;
  switches = released & ~2;
  RunFrames(g, frames + static_cast<I32>(Draw(g.sticky_random) % 256));
  switches = released;
  RunFrame(g);
  SetHands(g, DrawAction(g, 0, repeat_probability));
  RunFrame(g);
}

// Presses the keys of a mode (see Game::modes).
inline ROLLOUTS_HD void PressKeys(GameConsole& g, const char* keys, float repeat_probability) {
  U8& switches = g.console.inputs.switches;
  const U8 released = switches;
  while (*keys && *keys != ';') {
    const char key = *keys++;
    const I32 frames = ParseNumber(keys);
    I32 times = 1;
    if (*keys == 'x') times = ParseNumber(++keys);
    const U8* watched = nullptr;
    I32 mask = 0xff;
    I32 wanted = 0;
    if (*keys == '@') {
      watched = g.console.riot.ram + ParseNumber(++keys) - 128;
      if (*keys == '&') mask = ParseNumber(++keys);
      wanted = ParseNumber(++keys);
      times = kMaxPresses;
    }
    I32 action = 0;
    if (key == 'f') action = 1;
    if (key == 'u') action = 2;
    if (key == 'r') action = 3;
    if (key == 'l') action = 4;
    if (key == 'd') action = 5;
    if (key == 'j') action = 10;
    const bool drawn = *keys == '?';
    if (drawn) ++keys;
    while (*keys == ' ') ++keys;
    for (; times > 0; --times) {
      if (watched && (*watched & mask) == wanted) break;
      if (key == 's') {
        PressRandomly(g, frames, repeat_probability);
        continue;
      }
      if (drawn) {
        const I32 idle = watched ? 1 : 0;
        for (I32 i = 0; i < frames + idle; ++i) {
          SetHands(g, DrawAction(g, i < frames ? action : 0, repeat_probability));
          RunFrame(g);
        }
        continue;
      }
      SetHands(g, action);
      if (key == 'S') switches = released & ~2;
      if (key == 'R') switches = released & ~1;
      RunFrames(g, frames);
      switches = released;
      if (key == 'S') RunFrame(g);
    }
  }
  SetHands(g, 0);
}

// Does the same as ale-py's loadROM, except for the reset at its end. `random_seed` is that of the
// sticky actions.
inline ROLLOUTS_HD void PowerOn(GameConsole& g, const Game& game, const U8* rom, U32 random_seed,
                                const Decoded* decoded = nullptr) {
  Attach(g, game, rom, decoded);
  Seed(g.system_random, kSystemSeed);
  Seed(g.sticky_random, random_seed);
  g.last_action = 0;
  Console& c = g.console;
  c.board = Board{};
  c.board.kind = game.kind;
  c.board.hmove_blanks = game.hmove_blanks;
  c.inputs = Inputs{};
  for (U8& byte : c.riot.ram) byte = static_cast<U8>(Draw(g.system_random));
  // the chip is reset once before the console is
  Draw(g.system_random);

  // the reset with which ale-py finds the television's format
  ResetChips(g);
  RunFrames(g, 60);
  c.board.first_line = game.first_line;
  c.board.height = game.height;
  c.board.pal = game.pal;
  c.board.max_lines = game.pal ? 342 : 290;
  ResetChips(g);
}

// ale-py's reset_game: `mode` is one of the game's, `difficulty` a bit of game.difficulties. A
// reset draws random numbers and keeps RAM, so that the second one differs from the first, as in
// ale-py. Some modes are chosen with sticky actions.
inline ROLLOUTS_HD void Reset(GameConsole& g, I32 mode, I32 difficulty,
                              float repeat_probability) {
  g.console.inputs.switches = static_cast<U8>(0x3f | (difficulty & 3) << 6);
  g.last_action = 0;
  CenterPaddles(g);
  SetHands(g, 0);
  ResetChips(g);
  RunFrames(g, 60);
  PressKeys(g, "R4", repeat_probability);
  if (const char* const keys = FindKeys(*g.game, mode)) PressKeys(g, keys, repeat_probability);
  g.last_action = 0;
}

// Runs one frame with an action of 0..17. With `repeat_probability`, the last action is taken
// instead (sticky actions). A paddle turns by 23000 * strength.
inline ROLLOUTS_HD void Act(GameConsole& g, I32 action, float repeat_probability,
                            float strength = 1) {
  action = DrawAction(g, action, repeat_probability);
  const Push push = PushOf(action);
  if (g.game->controls >= Controls::kPaddles) {
    const I32 turn = static_cast<I32>(kTurn * strength) * (push.left - push.right);
    I32 turned = g.resistances[0] + turn;
    if (turned < kLeastTurned) turned = kLeastTurned;
    if (turned > g.game->most_turned) turned = g.game->most_turned;
    g.resistances[0] = turned;
  }
  SetHands(g, action);
  RunFrame(g);
  // ale-py then reads all of memory, through the bus
  g.console.bus = g.console.riot.ram[127];
}

// Copies all of `start` except the random numbers of sticky actions: so an episode begins from a
// console that was reset once.
inline ROLLOUTS_HD void Restart(GameConsole& g, const GameConsole& start) {
  const Mersenne sticky_random = g.sticky_random;
  g = start;
  g.sticky_random = sticky_random;
}

}  // namespace rollouts::atari2600
