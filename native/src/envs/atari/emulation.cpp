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

AtariConsole::AtariConsole(const std::string& rom_path, std::int32_t mode, std::int32_t difficulty,
                           float repeat_action_probability, std::uint32_t random_seed)
    : game_(AtariGame::Get(rom_path, mode, difficulty)),
      machine_(NewAtariMachine(game_, {repeat_action_probability, random_seed})) {}

AtariConsole::~AtariConsole() = default;

const std::vector<std::int32_t>& AtariConsole::legal_actions() const {
  return game_->legal_actions();
}
std::int32_t AtariConsole::height() const { return game_->screen_height(); }

void AtariConsole::Restart() { machine_->Restart(); }
void AtariConsole::Reset() { machine_->Reset(); }
std::int32_t AtariConsole::Act(std::int32_t action) { return machine_->Act({action}); }
void AtariConsole::Poke(std::uint8_t address, std::uint8_t value) {
  machine_->Poke(address, value);
}
bool AtariConsole::GameOver() const { return machine_->GameOver(); }
std::int32_t AtariConsole::Lives() const { return machine_->Lives(); }
const std::uint8_t* AtariConsole::Screen() const { return machine_->Screen(); }
const std::uint8_t* AtariConsole::Ram() const { return machine_->Ram().data(); }

}  // namespace rollouts
