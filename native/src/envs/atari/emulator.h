// SPDX-License-Identifier: Apache-2.0
// An Atari 2600 with a game in it, for the environment: frames, screen, memory, score. There are
// two implementations, ALE's and the native one, which give the same numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "game.h"
#include "rollouts/envs/atari/joystick.h"

namespace rollouts {

class AtariEmulator {
 public:
  // Bytes that Save wrote, after Read has checked them.
  class Saved {
   public:
    virtual ~Saved() = default;
  };

  virtual ~AtariEmulator() = default;

  // Goes to the state that every episode of the game starts from, whatever was played before.
  virtual void Restart() = 0;

  // Emulates one frame and returns its reward.
  virtual std::int32_t Act(const AtariPress& press) = 0;
  virtual bool GameOver() const = 0;
  virtual std::int32_t Lives() const = 0;

  // Palette indices, (height, 160); borrowed until the next call.
  virtual const std::uint8_t* Screen() const = 0;
  virtual std::span<const std::uint8_t, 128> Ram() const = 0;

  virtual void Save(std::vector<std::uint8_t>& out) const = 0;
  // Throws an Error for bytes that Save did not write.
  virtual std::unique_ptr<Saved> Read(std::span<const std::uint8_t> bytes) const = 0;
  // Continues from the state that Read returned.
  virtual void Resume(const Saved& saved) = 0;
};

// The native emulator as a console: adds functions of ale-py that no environment needs.
class AtariMachine : public AtariEmulator {
 public:
  // Resets as ale-py's reset_game does: memory is kept, and random numbers are drawn, those of
  // sticky actions too.
  virtual void Reset() = 0;
  // Changes a byte of memory; address is 0..127.
  virtual void Poke(std::uint8_t address, std::uint8_t value) = 0;
};

// Sticky actions drawn as by ale-py; an environment draws them from its own random numbers instead.
struct AtariSticky {
  float probability = 0;
  std::uint32_t seed = 0;  // ale-py's random_seed
};

// Makes ALE's emulator. Takes 70 ms, except for the first one of a game.
std::unique_ptr<AtariEmulator> NewAleEmulator(std::shared_ptr<const AtariGame> game);

// Makes the native emulator. Takes microseconds, except for the first one of a game.
std::unique_ptr<AtariEmulator> NewNativeEmulator(std::shared_ptr<const AtariGame> game);

// Makes a machine. With sticky actions its state equals that of ale-py after a second reset.
std::unique_ptr<AtariMachine> NewAtariMachine(std::shared_ptr<const AtariGame> game,
                                              const AtariSticky& sticky);

}  // namespace rollouts
