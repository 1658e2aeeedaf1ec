// SPDX-License-Identifier: Apache-2.0
// The native Atari 2600 emulator as an engine of the environments.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator.h"
#include "native_rules.h"
#include "rollouts/atari2600/decoded_rom.h"
#include "rollouts/atari2600/game_console.h"
#include "rollouts/atari2600/saved_console.h"
#include "rollouts/support/errors.h"
#include "rollouts/support/state.h"

namespace rollouts {
namespace {

using atari2600::GameConsole;
using atari2600::U8;

// a console's bytes without its screens, whose height depends on the game
constexpr std::size_t kConsoleBytes = offsetof(GameConsole, screens);

// Data that all environments of one game share.
struct NativeGame {
  std::vector<U8> rom;
  const atari2600::Game* game = nullptr;
  std::int32_t mode = 0;
  std::int32_t difficulty = 0;
  std::unique_ptr<atari2600::DecodedRom> decoded;
  std::unique_ptr<GameConsole> start;
  std::unique_ptr<NativeRules> start_rules;
};

std::vector<U8> ReadRom(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<U8> rom{std::istreambuf_iterator<char>(file), {}};
  if (file.bad() || rom.empty()) throw EngineError("ROM file " + path + " cannot be read");
  return rom;
}

// Prepares a ROM as ROLLOUTS_ATARI_CPU says; without it, compiles the ROM where the machine permits
// machine code, else decodes it.
std::unique_ptr<atari2600::DecodedRom> PrepareRom(const atari2600::Game& game,
                                                  const std::vector<U8>& rom) {
  const char* const variable = std::getenv("ROLLOUTS_ATARI_CPU");
  const std::string_view wanted = variable ? variable : "";
  const auto size = static_cast<std::int32_t>(rom.size());
  auto decoded =
      std::make_unique<atari2600::DecodedRom>(game.kind, rom.data(), size, wanted != "decoded");
  if (wanted.empty() || wanted == "decoded") return decoded;
  const bool can_compile = decoded->is_compiled() || !decoded->get();
  if (wanted == "compiled" && can_compile) return decoded;
  throw SpecError("ROLLOUTS_ATARI_CPU is '" + std::string(wanted) + "', and this machine can run: " +
                  (can_compile ? "compiled, decoded" : "decoded"));
}

NativeRules::Memory MemoryOf(const GameConsole& console) {
  return {Ram(console), CartridgeRam(console)};
}

// Starts a console as AtariGame starts its emulator: switches it on, which resets it, and resets it
// once more.
std::shared_ptr<const NativeGame> Start(const AtariGame& game, const AtariSticky& sticky = {}) {
  auto native = std::make_shared<NativeGame>();
  native->rom = ReadRom(game.rom_path());
  const U8* const rom = native->rom.data();
  native->game = atari2600::FindGame(rom, static_cast<std::uint32_t>(native->rom.size()));
  if (!native->game) {
    throw EngineError("ROM file " + game.rom_path() +
                      " is not a game that engine='native' knows: use engine='ale'");
  }
  native->decoded = PrepareRom(*native->game, native->rom);
  native->start = std::make_unique<GameConsole>();
  GameConsole& console = *native->start;
  PowerOn(console, *native->game, rom, sticky.seed, native->decoded->get());
  const char* modes = native->game->modes;
  const std::int32_t own_mode = atari2600::ParseNumber(modes);
  native->mode = game.mode() == AtariGame::kDefault ? own_mode : game.mode();
  native->difficulty = std::max(game.difficulty(), 0);
  atari2600::Reset(console, own_mode, 0, sticky.probability);
  atari2600::Reset(console, native->mode, native->difficulty, sticky.probability);
  native->start_rules = std::make_unique<NativeRules>(
      NativeRules::Start(game, native->game->name, native->rom, MemoryOf(console)));
  return native;
}

std::shared_ptr<const NativeGame> NativeGameOf(const AtariGame& game) {
  // never destroyed: at exit, pools may still run and ale_py may be gone
  static auto& mutex = *new std::mutex;
  static auto& games = *new std::map<const AtariGame*, std::shared_ptr<const NativeGame>>;

  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<const NativeGame>& found = games[&game];
  if (!found) found = Start(game);
  return found;
}

class NativeEmulator final : public AtariMachine {
 public:
  NativeEmulator(std::shared_ptr<const AtariGame> game, std::shared_ptr<const NativeGame> native,
                 float repeat_probability)
      : game_(std::move(game)),
        native_(std::move(native)),
        repeat_probability_(repeat_probability) {
    const auto& legal = game_->legal_actions();
    for (AleAction action = 0; action < kNumAleActions; ++action) {
      // an action that the game does not use presses no button, as in ALE
      const bool is_legal = std::find(legal.begin(), legal.end(), action) != legal.end();
      actions_[static_cast<std::size_t>(action)] = is_legal ? action : kAleNoop;
    }
    Restart();
  }

  void Restart() override { GoOn(*native_->start, *native_->start_rules); }

  void Reset() override {
    atari2600::Reset(*console_, native_->mode, native_->difficulty, repeat_probability_);
    rules_ = std::make_unique<NativeRules>(
        NativeRules::Start(*game_, native_->game->name, native_->rom, MemoryOf(*console_)));
  }

  void Poke(std::uint8_t address, std::uint8_t value) override {
    console_->console.riot.ram[address] = console_->console.bus = value;
  }

  std::int32_t Act(const AtariPress& press) override {
    // nothing is emulated after the end. ALE's Demon Attack is over at its start in modes 3, 5 and
    // 7
    if (rules_->GameOver()) return 0;
    const AleAction action = actions_.at(static_cast<std::size_t>(press.action));
    atari2600::Act(*console_, action, repeat_probability_, press.strength);
    rules_->Step();
    return rules_->Reward();
  }
  bool GameOver() const override { return rules_->GameOver(); }
  std::int32_t Lives() const override { return rules_->Lives(); }
  const std::uint8_t* Screen() const override { return atari2600::Screen(*console_); }
  std::span<const std::uint8_t, 128> Ram() const override {
    return std::span<const std::uint8_t, 128>(atari2600::Ram(*console_), 128);
  }

  void Save(std::vector<std::uint8_t>& out) const override {
    StateWriter writer(out);
    const auto copy = std::make_unique<GameConsole>(*console_);
    // addresses are invalid elsewhere
    copy->game = nullptr;
    copy->console.cartridge.rom = nullptr;
    copy->console.cartridge.decoded = nullptr;
    copy->console.screens[0] = copy->console.screens[1] = nullptr;
    writer.PutBytes({reinterpret_cast<const U8*>(copy.get()), kConsoleBytes});
    for (const auto& screen : copy->screens) writer.PutBytes({screen, ScreenBytes()});
    rules_->Save(out);
  }

  std::unique_ptr<Saved> Read(std::span<const std::uint8_t> bytes) const override {
    StateReader reader(bytes);
    auto saved = std::make_unique<SavedNative>();
    GameConsole& console = saved->console;
    std::memcpy(static_cast<void*>(&console), reader.GetBytes(kConsoleBytes).data(), kConsoleBytes);
    const auto rom_size = static_cast<std::uint32_t>(native_->rom.size());
    if (!atari2600::IsConsole(console, *native_->start, rom_size)) {
      throw SpecError("has numbers that no console with this game has");
    }
    atari2600::Attach(console, *native_->game, native_->rom.data(), native_->decoded->get());
    for (auto& screen : console.screens) {
      std::memcpy(screen, reader.GetBytes(ScreenBytes()).data(), ScreenBytes());
    }
    saved->rules = std::make_unique<NativeRules>(*native_->start_rules, MemoryOf(console));
    saved->rules->Restore(reader.rest());
    return saved;
  }

  void Resume(const Saved& saved) override {
    const auto& native = static_cast<const SavedNative&>(saved);
    GoOn(native.console, *native.rules);
  }

 private:
  struct SavedNative final : Saved {
    GameConsole console;
    std::unique_ptr<NativeRules> rules;
  };

  std::size_t ScreenBytes() const {
    return static_cast<std::size_t>(native_->game->height) * atari2600::kWidth;
  }

  void GoOn(const GameConsole& console, const NativeRules& rules) {
    *console_ = console;
    rules_ = std::make_unique<NativeRules>(rules, MemoryOf(*console_));
  }

  const std::shared_ptr<const AtariGame> game_;
  const std::shared_ptr<const NativeGame> native_;
  const float repeat_probability_;  // 0: the environment draws sticky actions itself
  std::array<AleAction, kNumAleActions> actions_{};
  const std::unique_ptr<GameConsole> console_ = std::make_unique<GameConsole>();
  std::unique_ptr<NativeRules> rules_;  // the rules, which read the console's memory
};

}  // namespace

std::unique_ptr<AtariEmulator> NewNativeEmulator(std::shared_ptr<const AtariGame> game) {
  auto native = NativeGameOf(*game);
  return std::make_unique<NativeEmulator>(std::move(game), std::move(native), 0.0f);
}

std::unique_ptr<AtariMachine> NewAtariMachine(std::shared_ptr<const AtariGame> game,
                                              const AtariSticky& sticky) {
  auto native = sticky.probability > 0 ? Start(*game, sticky) : NativeGameOf(*game);
  return std::make_unique<NativeEmulator>(std::move(game), std::move(native), sticky.probability);
}

}  // namespace rollouts
