// SPDX-License-Identifier: Apache-2.0
// The Arcade Learning Environment, used through the C++ symbols that the ale-py wheel exports. Only
// this file, ale_abi.cpp and the ale_rules files depend on ALE's ABI; nothing of ALE is compiled or
// linked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rollouts {

// ale::Action; the values are ALE's.
using AleAction = std::int32_t;
inline constexpr AleAction kAleNoop = 0;
inline constexpr AleAction kAleFire = 1;

// Functions of the library itself. All are thread-safe.
class AleLibrary {
 public:
  // Resolves every symbol in the shared object of the imported `ale_py` package.
  // `version` is the version of the package, for messages. Loading twice is harmless. Throws
  // EngineError when the object is not loaded, lacks a symbol, or lays out its objects differently
  // from the versions that this was written for.
  static void Load(const std::string& so_path, const std::string& version);

  // Throws EngineError unless `rom_path` is a file that ALE can play. To be called before LoadRom,
  // which ends the process when it cannot read the file.
  static void CheckRom(const std::string& rom_path);
};

// A saved state of the emulator. It may be restored into any Ale that has loaded the same ROM, by
// several threads at once.
class AleState {
 public:
  // Takes what Serialize returned. Throws EngineError for text that ALE cannot read.
  explicit AleState(const std::string& serialized);
  AleState(const AleState&) = delete;
  AleState& operator=(const AleState&) = delete;
  ~AleState();

  std::string Serialize() const;
  // ALE's counts of frames: since it loaded the game, and of this episode.
  struct Frames {
    std::int32_t all = 0;
    std::int32_t of_episode = 0;
  };
  Frames CountFrames() const;

 private:
  friend class AleLibrary;
  // States are otherwise made only in place, as the return value of ALE's cloneState.
  AleState() = delete;
  static constexpr std::size_t kBytes = 256;  // ale::ALEState of 0.12 has 72
  alignas(std::max_align_t) std::byte storage_[kBytes];
};

// The screen as palette indices, row by row. Borrowed: valid until the next LoadRom; every Act
// changes the pixels.
struct AleScreen {
  std::uint8_t* pixels = nullptr;
  std::int32_t height = 0;
  std::int32_t width = 0;
};

// Colours of the emulator's palette, by palette index.
struct AlePalette {
  std::array<std::uint8_t, 256> gray;
  std::array<std::array<std::uint8_t, 3>, 256> rgb;
};

// One emulator. Different objects may be used from different threads at the same
// time, one object by one thread at a time. No function needs the GIL.
class Ale {
 public:
  // Throws EngineError when AleLibrary::Load has not succeeded.
  Ale();
  Ale(const Ale&) = delete;
  Ale& operator=(const Ale&) = delete;
  ~Ale();

  // Settings take effect in LoadRom.
  void SetInt(const std::string& key, std::int32_t value);
  void SetBool(const std::string& key, bool value);
  void SetFloat(const std::string& key, float value);

  // Loads the game, which takes about 70 ms, and resets it once. The path must
  // have passed AleLibrary::CheckRom.
  void LoadRom(const std::string& rom_path);

  // Emulates one frame and returns its reward. A paddle turns by |strength|; 23000 times this must
  // fit an int.
  std::int32_t Act(AleAction action, float strength = 1);
  bool GameOver() const;
  std::int32_t Lives();
  void ResetGame();

  AleScreen screen() const { return screen_; }
  std::span<const std::uint8_t, 128> Ram() const;
  AlePalette Palette();

  std::vector<AleAction> MinimalActions() const;
  std::vector<AleAction> LegalActions() const;
  std::vector<std::uint32_t> Modes() const;
  std::vector<std::uint32_t> Difficulties() const;
  // The value must be listed by Modes or Difficulties; it takes effect in the next ResetGame.
  void SetMode(std::uint32_t mode);
  void SetDifficulty(std::uint32_t difficulty);

  // Copies the whole emulator and, on request, its random generators, but not its frame buffers:
  // after RestoreState, screen() shows the old frame until the next Act.
  std::unique_ptr<AleState> CloneState(bool include_rng = true);
  // Throws EngineError for a state that ALE cannot restore, and leaves the emulator
  // undefined then.
  void RestoreState(const AleState& state);

 private:
  friend class AleLibrary;
  static constexpr std::size_t kBytes = 512;  // ale::ALEInterface of 0.12 has 40
  alignas(std::max_align_t) std::byte storage_[kBytes];
  AleScreen screen_;
};

}  // namespace rollouts
