// SPDX-License-Identifier: Apache-2.0
// The native Atari 2600 emulator alone, without the environment's processing of frames, to measure
// the cost of emulation.
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

// One game; used by one thread.
class AtariEmulation {
 public:
  // Throws EngineError for a ROM of an unknown game.
  AtariEmulation(const std::string& rom_path, std::int32_t frameskip);
  ~AtariEmulation();

  // Plays on with actions of 0..17, each for `frameskip` frames. Returns the seconds that the
  // frames took. A game that ends begins anew, which is not counted.
  double Run(std::span<const std::int32_t> actions);

 private:
  const std::int32_t frameskip_;
  const std::unique_ptr<AtariEmulator> emulator_;
};

// One game in the native emulator, for comparing it with ale-py frame by frame; used by one thread.
class AtariConsole {
 public:
  // mode, difficulty: -1 is the game's default. Sticky actions are drawn as by ale-py with this
  // random_seed. Throws EngineError for a ROM of an unknown game, SpecError for a mode that the
  // game lacks.
  AtariConsole(const std::string& rom_path, std::int32_t mode, std::int32_t difficulty,
               float repeat_action_probability, std::uint32_t random_seed);
  ~AtariConsole();

  // Goes to the state that every episode of an environment starts from.
  void Restart();
  // Resets as ale-py's reset_game does, which keeps memory and draws random numbers.
  void Reset();
  // Emulates a frame with an action of 0..17; returns its reward. Nothing happens in a game that is
  // over.
  std::int32_t Act(std::int32_t action);
  // Changes a byte of memory; address is 0..127.
  void Poke(std::uint8_t address, std::uint8_t value);

  bool GameOver() const;
  std::int32_t Lives() const;
  // The actions of 0..17 that the game uses.
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
