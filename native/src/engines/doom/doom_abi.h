// SPDX-License-Identifier: Apache-2.0
// ViZDoom, used through the C++ symbols that the vizdoom wheel exports. Only the files of this
// folder depend on its ABI; nothing of ViZDoom is compiled or linked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rollouts {

// Functions of the library itself. All are thread-safe.
class DoomLibrary {
 public:
  // Resolves every symbol in the shared object of the imported `vizdoom` package. `version` is the
  // version of the package, for messages. `game` is the package's executable, `guardian` the one of
  // native/guardian/. Loading twice is harmless. Throws EngineError when the object is not loaded,
  // lacks a symbol, or lays out its objects differently from the versions that this was written
  // for.
  static void Load(const std::string& so_path, const std::string& version, const std::string& game,
                   const std::string& guardian);
};

// vizdoom::Button; the value is ViZDoom's.
using DoomButton = std::int32_t;
bool IsDeltaButton(DoomButton button);

// Settings of a game. Empty strings and -1: as in the config file.
struct DoomSetup {
  std::string config_file;
  std::string wad_file;
  std::string iwad_file;
  std::string map;
  std::string game_args;
  std::int32_t skill = -1;
  std::int32_t episode_timeout = -1;   // frames; 0: none
  std::int32_t screen_resolution = -1;  // vizdoom::ScreenResolution
  bool gray = false;                    // GRAY8; false: GRAY8 or RGB24, as in the config file
  bool colour = false;                  // RGB24
  bool only_screen = true;              // without the next four, whatever the config file has
  bool depth = false;                   // true: even if the config file has none
  bool labels = false;
  bool automap = false;
  bool audio = false;
  std::int32_t audio_frames = 1;  // frames of sound in a view
};

// Facts about a game with such a setup.
struct DoomFacts {
  std::int32_t height = 0;
  std::int32_t width = 0;
  std::int32_t channels = 0;  // 1 or 3
  std::int32_t num_variables = 0;
  bool depth = false;
  bool labels = false;
  bool automap = false;
  std::int32_t audio_samples = 0;  // samples in a view, for each of two channels
  // buttons with amounts come first, as in vizdoom's Gymnasium environments
  std::vector<DoomButton> delta_buttons;
  std::vector<DoomButton> binary_buttons;
};

// A game's view between two steps. The spans are valid as long as the object or a copy of it
// exists, whatever the game does. No `owner`: the episode has ended, and there is no view.
struct DoomView {
  std::shared_ptr<const void> owner;
  std::span<const std::uint8_t> screen;   // (height, width, channels)
  std::span<const std::uint8_t> depth;    // (height, width)
  std::span<const std::uint8_t> labels;   // (height, width)
  std::span<const std::uint8_t> automap;  // (height, width, channels)
  std::span<const std::int16_t> audio;    // (audio_samples, 2)
  std::span<const double> variables;
};

// One game, whose process runs from Start until the object is destroyed. Different objects may be
// used from different threads at the same time, one object by one thread at a time. No function
// needs the GIL. Every function throws EngineError when the game's process has ended, or was ended
// because it did not answer for too long (call_limit.h); Start must then be called on a new object.
class Doom {
 public:
  // Reads the config file. Throws EngineError when DoomLibrary::Load has not succeeded, or where
  // ViZDoom refuses the setup, and SpecError for settings that the game would ignore, such as a map
  // that does not exist.
  explicit Doom(const DoomSetup& setup);
  Doom(const Doom&) = delete;
  Doom& operator=(const Doom&) = delete;
  ~Doom();

  const DoomFacts& facts() const { return facts_; }

  // Starts the process, which takes 0.3 s, and the first episode. To be called once at most.
  void Start(std::uint32_t seed);
  // After a failed Start: whether the effects of sound may have ended this game, so that a new game
  // may start without them. From then on, all games of this process run without them.
  bool CanDoWithoutEffects() const;
  // Begins a new episode, which does not depend on those before.
  void NewEpisode(std::uint32_t seed);
  // Runs `frames` frames with these values of the buttons, or fewer if the episode ends; returns
  // the reward.
  double Act(const std::vector<double>& buttons, std::int32_t frames);
  bool EpisodeFinished();
  bool TimeoutReached();
  DoomView View();

 private:
  friend class DoomLibrary;
  void Configure(const DoomSetup& setup);
  void ReadFacts(std::int32_t audio_frames);
  void MakeFolder();
  std::string LastWords() const;
  template <typename Call>
  auto Guarded(Call&& call, std::int32_t frames = 0) const;

  static constexpr std::size_t kBytes = 2048;  // vizdoom::DoomGame of 1.3.2 has 336
  alignas(std::max_align_t) std::byte storage_[kBytes];
  DoomFacts facts_;
  std::string folder_;  // the game's own, while it runs
  bool has_effects_ = false;  // effects of sound
};

}  // namespace rollouts
