// SPDX-License-Identifier: Apache-2.0
// Our Atari 2600 alone, without what an environment makes of its frames: what emulation costs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rollouts {

class AtariEmulator;
class AtariGame;
class AtariMachine;

// One game; for one thread.
class AtariEmulation {
 public:
  // Throws EngineError for a ROM that is no game's.
  AtariEmulation(const std::string& rom_path, std::int32_t frameskip);
  ~AtariEmulation();

  // Plays on with actions of 0..17, each for `frameskip` frames. Returns the seconds that the frames
  // took; where a game ends, it begins anew, which is not counted.
  double Run(std::span<const std::int32_t> actions);

 private:
  const std::int32_t frameskip_;
  const std::unique_ptr<AtariEmulator> emulator_;
};

// One game in our Atari 2600, to be compared with ale-py's frame by frame; for one thread.
class AtariConsole {
 public:
  // mode, difficulty: -1 is the game's own. Sticky actions are drawn as ale-py draws them with this
  // random_seed. Throws EngineError for a ROM that is no game's, SpecError for a mode that it lacks.
  AtariConsole(const std::string& rom_path, std::int32_t mode, std::int32_t difficulty,
               float repeat_action_probability, std::uint32_t random_seed);
  ~AtariConsole();

  // The state that every episode of an environment starts from.
  void Restart();
  // As ale-py's reset_game, which keeps memory and draws random numbers.
  void Reset();
  // A frame with an action of 0..17; returns its reward. Nothing happens in a game that is over.
  std::int32_t Act(std::int32_t action);
  // Changes a byte of memory; address is 0..127.
  void Poke(std::uint8_t address, std::uint8_t value);

  bool GameOver() const;
  std::int32_t Lives() const;
  // Those of 0..17 that mean something in this game.
  const std::vector<std::int32_t>& legal_actions() const;
  std::int32_t height() const;
  // (height, 160) palette indices and (128,) bytes; borrowed until the next call.
  const std::uint8_t* Screen() const;
  const std::uint8_t* Ram() const;

 private:
  const std::shared_ptr<const AtariGame> game_;
  const std::unique_ptr<AtariMachine> machine_;
};

}  // namespace rollouts
