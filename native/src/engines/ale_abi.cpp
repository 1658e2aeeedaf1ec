// SPDX-License-Identifier: Apache-2.0
#include "ale_abi.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>

#include "engines/ale_resolver.h"
#include "rollouts/support/errors.h"

namespace rollouts {

using Path = std::filesystem::path;

// Function types have the real standard types, so that the compiler passes paths and returns
// vectors as the C++ ABI requires. A member function is a function whose first argument is the
// object.
struct AleSymbols {
  void (*construct)(void*);
  void (*destroy)(void*);
  void (*load_rom)(void*, Path);
  std::optional<std::string> (*supported_rom)(const Path&);
  void (*set_int)(void*, const std::string&, int);
  void (*set_bool)(void*, const std::string&, bool);
  void (*set_float)(void*, const std::string&, float);
  int (*act)(void*, int, float);
  bool (*game_over)(const void*, bool);
  void (*reset_game)(void*);
  int (*lives)(void*);
  const void* (*screen)(const void*);
  void (*screen_gray)(const void*, std::vector<unsigned char>&);
  void (*screen_rgb)(const void*, std::vector<unsigned char>&);
  const void* (*ram)(const void*);
  std::vector<int> (*minimal_actions)(const void*);
  std::vector<int> (*legal_actions)(const void*);
  std::vector<unsigned> (*modes)(const void*);
  std::vector<unsigned> (*difficulties)(const void*);
  void (*set_mode)(void*, unsigned);
  void (*set_difficulty)(void*, unsigned);
  AleState (*clone_state)(void*, bool);
  void (*restore_state)(void*, const AleState&);
  void (*construct_state)(void*);
  void (*deserialize_state)(void*, const std::string&);
  std::string (*serialize_state)(const void*);
  void (*set_log_level)(int);

  // The offset of an ALEState's std::string, its only member that owns memory.
  std::size_t state_string_offset = 0;
};

namespace {

constexpr int kLogErrorsOnly = 2;  // ale::Logger::Error
constexpr std::int32_t kScreenWidth = 160;
constexpr std::int32_t kMaxScreenHeight = 300;

// ale::ALEScreen: the exported getScreen returns it, its accessors are inline.
struct ScreenLayout {
  int height;
  int width;
  std::vector<unsigned char> pixels;
};

std::mutex load_mutex;
std::atomic<const AleSymbols*> loaded_symbols{nullptr};  // set once, never freed

const AleSymbols& Symbols() {
  const AleSymbols* symbols = loaded_symbols.load(std::memory_order_acquire);
  if (!symbols) {
    throw EngineError(
        "ALE is not loaded: make Atari environments with rollouts.make_vec(\"ALE/...\"), "
        "which imports ale_py first");
  }
  return *symbols;
}

void ResolveAll(AleResolver& resolve, AleSymbols& s) {
  const std::string ale = "_ZN3ale12ALEInterface";
  const std::string ale_const = "_ZNK3ale12ALEInterface";
  const std::string text = kMangledText;
  resolve(s.construct, ale + "C1Ev");
  resolve(s.destroy, ale + "D1Ev");
  resolve(s.load_rom, ale + "7loadROMENSt10filesystem7__cxx114pathE");
  resolve(s.supported_rom, ale + "14isSupportedROMERKNSt10filesystem7__cxx114pathE");
  resolve(s.set_int, ale + "6setIntERK" + text + "i");
  resolve(s.set_bool, ale + "7setBoolERK" + text + "b");
  resolve(s.set_float, ale + "8setFloatERK" + text + "f");
  resolve(s.act, ale + "3actENS_6ActionEf");
  resolve(s.game_over, ale_const + "9game_overEb");
  resolve(s.reset_game, ale + "10reset_gameEv");
  resolve(s.lives, ale + "5livesEv");
  resolve(s.screen, ale_const + "9getScreenEv");
  resolve(s.screen_gray, ale_const + "18getScreenGrayscaleERSt6vectorIhSaIhEE");
  resolve(s.screen_rgb, ale_const + "12getScreenRGBERSt6vectorIhSaIhEE");
  resolve(s.ram, ale_const + "6getRAMEv");
  resolve(s.minimal_actions, ale_const + "19getMinimalActionSetEv");
  resolve(s.legal_actions, ale_const + "17getLegalActionSetEv");
  resolve(s.modes, ale_const + "17getAvailableModesEv");
  resolve(s.difficulties, ale_const + "24getAvailableDifficultiesEv");
  resolve(s.set_mode, ale + "7setModeEj");
  resolve(s.set_difficulty, ale + "13setDifficultyEj");
  resolve(s.clone_state, ale + "10cloneStateEb");
  resolve(s.restore_state, ale + "12restoreStateERKNS_8ALEStateE");
  resolve(s.construct_state, "_ZN3ale8ALEStateC1Ev");
  resolve(s.deserialize_state, "_ZN3ale8ALEStateC1ERK" + text);
  resolve(s.serialize_state, "_ZN3ale8ALEState9serializeB5cxx11Ev");
  resolve(s.set_log_level, "_ZN3ale6Logger7setModeENS0_4modeE");
}

// The number of bytes that `construct` writes into `bytes`, up to the last changed one.
template <std::size_t kSize>
std::size_t BytesWritten(void (*construct)(void*), std::array<std::byte, kSize>& bytes) {
  // no header has the size: bytes that the constructor leaves unchanged are not part of the object
  constexpr std::byte kPattern{0xA5};
  bytes.fill(kPattern);
  construct(bytes.data());
  std::size_t size = kSize;
  while (size > 0 && bytes[size - 1] == kPattern) --size;
  return size;
}

// Offset of the empty std::string in a new ALEState. libstdc++'s string points to the buffer in
// itself, which no other member does.
std::optional<std::size_t> FindEmptyString(const std::byte* object, std::size_t size) {
  for (std::size_t offset = 0; offset + sizeof(std::string) <= size; offset += alignof(void*)) {
    const std::byte* data = nullptr;
    std::memcpy(&data, object + offset, sizeof(data));
    if (data == object + offset + 2 * sizeof(void*)) return offset;
  }
  return std::nullopt;
}

// Checks by experiment what the types above assume about the library's objects.
void CheckLayout(AleSymbols& symbols, std::size_t ale_bytes, std::size_t state_bytes,
                 const std::string& version) {
  alignas(std::max_align_t) static std::array<std::byte, 4096> probe;
  if (BytesWritten(symbols.construct, probe) > ale_bytes) {
    throw EngineError("ale::ALEInterface is larger than " + std::to_string(ale_bytes) +
                      " bytes" + AleAdvice(version));
  }
  symbols.destroy(probe.data());
  if (BytesWritten(symbols.construct_state, probe) > state_bytes) {
    throw EngineError("ale::ALEState is larger than " + std::to_string(state_bytes) + " bytes" +
                      AleAdvice(version));
  }
  const auto offset = FindEmptyString(probe.data(), state_bytes);
  // this object is not destroyed: only its string could own memory, and it is empty
  if (!offset) throw EngineError("ale::ALEState holds no std::string" + AleAdvice(version));
  symbols.state_string_offset = *offset;
}

// Calls a function of ALE that reads a state. ALE also throws strings there.
template <typename Call>
void RefusedAsError(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    throw EngineError(std::string("ALE refuses the saved state: ") + error.what());
  } catch (...) {
    throw EngineError("ALE refuses the saved state");
  }
}

}  // namespace

void AleLibrary::Load(const std::string& so_path, const std::string& version) {
  const std::lock_guard<std::mutex> lock(load_mutex);
  // loaded once in a process, although pools of several threads may call this
  if (loaded_symbols.load()) return;

  // the handle is kept until the process ends, like the module itself. RTLD_NOLOAD: finds ale_py's
  // own module, with the state that Python uses
  void* handle = dlopen(so_path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (!handle) {
    const char* reason = dlerror();
    throw EngineError("the module of ale_py is not loaded: expected " + so_path +
                      " after `import ale_py`" + (reason ? std::string(", got: ") + reason : ""));
  }

  // stored only when all of it is known and checked, because others read it without the lock
  auto symbols = std::make_unique<AleSymbols>();
  AleResolver resolver(handle);
  ResolveAll(resolver, *symbols);
  resolver.CheckAllFound(version);

  // constructing the probe would print a banner
  symbols->set_log_level(kLogErrorsOnly);
  CheckLayout(*symbols, Ale::kBytes, AleState::kBytes, version);
  loaded_symbols.store(symbols.release(), std::memory_order_release);
}

void AleLibrary::CheckRom(const std::string& rom_path) {
  const AleSymbols& symbols = Symbols();
  std::error_code ignored;
  // checked here, because ALE would end the process over a file that it cannot open
  if (!std::filesystem::is_regular_file(rom_path, ignored)) {
    throw EngineError("ROM file " + rom_path +
                      " does not exist: pip install --force-reinstall ale-py, which carries the "
                      "ROMs, or correct ALE_ROMS_DIR");
  }
  std::optional<std::string> game;
  try {
    game = symbols.supported_rom(rom_path);
  } catch (const std::exception& error) {
    throw EngineError("ROM file " + rom_path + " cannot be read: " + error.what());
  }
  if (!game) {
    throw EngineError("ROM file " + rom_path +
                      " is not a game that ALE can play (its MD5 is unknown): expected one of "
                      "ale-py's single-player ROMs, see rollouts.env_ids()");
  }
}

AleState::AleState(const std::string& serialized) {
  RefusedAsError([&] { Symbols().deserialize_state(storage_, serialized); });
}

std::string AleState::Serialize() const { return Symbols().serialize_state(storage_); }

AleState::Frames AleState::CountFrames() const {
  // numbers of four bytes: two paddles, then these
  constexpr std::size_t kPlace = 8;
  const std::string text = Serialize();
  Frames frames;
  if (text.size() < kPlace + sizeof(frames)) throw EngineError("ALE's saved state is too short");
  std::memcpy(&frames, text.data() + kPlace, sizeof(frames));
  return frames;
}

AleState::~AleState() {
  // ALE exports no destructor of states: only its string has to be freed
  std::byte* text = storage_ + Symbols().state_string_offset;
  std::destroy_at(reinterpret_cast<std::string*>(text));
}

Ale::Ale() { Symbols().construct(storage_); }
Ale::~Ale() { Symbols().destroy(storage_); }

void Ale::SetInt(const std::string& key, std::int32_t value) {
  Symbols().set_int(storage_, key, value);
}
void Ale::SetBool(const std::string& key, bool value) { Symbols().set_bool(storage_, key, value); }
void Ale::SetFloat(const std::string& key, float value) {
  Symbols().set_float(storage_, key, value);
}

void Ale::LoadRom(const std::string& rom_path) {
  Symbols().load_rom(storage_, Path(rom_path));
  // the screen's address stays the same as long as the emulator exists, so it is read directly from
  // now on
  auto* screen = const_cast<ScreenLayout*>(
      static_cast<const ScreenLayout*>(Symbols().screen(storage_)));
  // these numbers would be unlikely with a layout other than ScreenLayout
  const bool plausible =
      screen->width == kScreenWidth && screen->height > 0 && screen->height <= kMaxScreenHeight &&
      screen->pixels.size() == static_cast<std::size_t>(screen->height) * kScreenWidth;
  if (!plausible) {
    throw EngineError(std::string("ale::ALEScreen has an unexpected layout: rollouts was tested "
                                  "with ale-py") + kTestedAleVersions);
  }
  screen_ = AleScreen{screen->pixels.data(), screen->height, screen->width};
}

std::int32_t Ale::Act(AleAction action, float strength) {
  return Symbols().act(storage_, action, strength);
}
bool Ale::GameOver() const { return Symbols().game_over(storage_, true); }
std::int32_t Ale::Lives() { return Symbols().lives(storage_); }
void Ale::ResetGame() { Symbols().reset_game(storage_); }

std::span<const std::uint8_t, 128> Ale::Ram() const {
  // the console has no more memory
  return std::span<const std::uint8_t, 128>(
      static_cast<const std::uint8_t*>(Symbols().ram(storage_)), 128);
}

AlePalette Ale::Palette() {
  // makes a screen that has every index once, and converts it by the emulator's own functions
  constexpr std::size_t kColours = 256;
  std::array<std::uint8_t, kColours> saved;
  std::copy_n(screen_.pixels, kColours, saved.begin());
  for (std::size_t i = 0; i < kColours; ++i) screen_.pixels[i] = static_cast<std::uint8_t>(i);
  std::vector<unsigned char> gray;
  std::vector<unsigned char> rgb;
  Symbols().screen_rgb(storage_, rgb);
  // ALE reads the gray of an odd index from the next entry; after 255 there is none, which gives 0
  screen_.pixels[kColours - 1] = 0;
  Symbols().screen_gray(storage_, gray);
  gray[kColours - 1] = 0;
  std::copy_n(saved.begin(), kColours, screen_.pixels);

  AlePalette palette{};
  for (std::size_t i = 0; i < kColours; ++i) {
    palette.gray[i] = gray[i];
    palette.rgb[i] = {rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]};
  }
  return palette;
}

std::vector<AleAction> Ale::MinimalActions() const { return Symbols().minimal_actions(storage_); }
std::vector<AleAction> Ale::LegalActions() const { return Symbols().legal_actions(storage_); }
std::vector<std::uint32_t> Ale::Modes() const { return Symbols().modes(storage_); }
std::vector<std::uint32_t> Ale::Difficulties() const { return Symbols().difficulties(storage_); }
void Ale::SetMode(std::uint32_t mode) { Symbols().set_mode(storage_, mode); }
void Ale::SetDifficulty(std::uint32_t difficulty) {
  Symbols().set_difficulty(storage_, difficulty);
}

std::unique_ptr<AleState> Ale::CloneState(bool include_rng) {
  // the returned object is constructed in the allocation itself (guaranteed elision)
  return std::unique_ptr<AleState>(
      new AleState(Symbols().clone_state(storage_, include_rng)));
}
void Ale::RestoreState(const AleState& state) {
  RefusedAsError([&] { Symbols().restore_state(storage_, state); });
}

}  // namespace rollouts
