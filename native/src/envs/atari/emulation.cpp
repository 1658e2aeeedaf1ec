// SPDX-License-Identifier: Apache-2.0
#include "rollouts/envs/atari/emulation.h"

#include <chrono>

#include "emulator.h"

namespace rollouts {

AtariEmulation::AtariEmulation(const std::string& rom_path, std::int32_t frameskip)
    : frameskip_(frameskip),
      emulator_(NewNativeEmulator(
          AtariGame::Get(rom_path, AtariGame::kDefault, AtariGame::kDefault))) {}

AtariEmulation::~AtariEmulation() = default;

double AtariEmulation::Run(std::span<const std::int32_t> actions) {
  using Clock = std::chrono::steady_clock;
  std::chrono::duration<double> elapsed{};
  Clock::time_point started = Clock::now();
  for (const std::int32_t action : actions) {
    for (std::int32_t i = 0; i < frameskip_; ++i) {
      emulator_->Act({action});
      if (!emulator_->GameOver()) continue;
      elapsed += Clock::now() - started;
      emulator_->Restart();
      started = Clock::now();
    }
  }
  elapsed += Clock::now() - started;
  return elapsed.count();
}

}  // namespace rollouts
