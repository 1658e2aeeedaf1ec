// SPDX-License-Identifier: Apache-2.0
// Our Atari 2600 alone, without what an environment makes of its frames: what emulation costs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace rollouts {

class AtariEmulator;

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

}  // namespace rollouts
