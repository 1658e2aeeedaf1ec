// SPDX-License-Identifier: Apache-2.0
// Our console with a game in it, for a test to call.
#include <cstring>
#include <memory>
#include <vector>

#include "rollouts/atari2600/decoded_rom.h"
#include "rollouts/atari2600/game_console.h"

namespace {

using namespace rollouts::atari2600;

struct Player {
  std::vector<U8> rom;
  std::unique_ptr<DecodedRom> decoded;
  GameConsole console;
};

void Decode(Player& player, const Game& game) {
  player.decoded = std::make_unique<DecodedRom>(game.kind, player.rom.data(),
                                                static_cast<I32>(player.rom.size()), true);
}

}  // namespace

extern "C" {

// Null for a ROM that is no game's.
Player* game_new(const U8* rom, int size, unsigned seed) {
  const Game* const game = FindGame(rom, static_cast<U32>(size));
  if (!game) return nullptr;
  auto player = std::make_unique<Player>();
  player->rom.assign(rom, rom + size);
  Decode(*player, *game);
  PowerOn(player->console, *game, player->rom.data(), seed, player->decoded->get());
  return player.release();
}

Player* game_clone(const Player* player) {
  const Game& game = *player->console.game;
  auto copy = std::make_unique<Player>();
  copy->rom = player->rom;
  copy->console = player->console;
  Decode(*copy, game);
  Attach(copy->console, game, copy->rom.data(), copy->decoded->get());
  return copy.release();
}

void game_delete(Player* player) { delete player; }

void game_reset(Player* player, int mode, int difficulty, float repeat_probability) {
  Reset(player->console, mode, difficulty, repeat_probability);
}

void game_act(Player* player, int action, float repeat_probability) {
  Act(player->console, action, repeat_probability);
}

const U8* game_ram(const Player* player) { return Ram(player->console); }
const U8* game_screen(const Player* player) { return Screen(player->console); }

}  // extern "C"
