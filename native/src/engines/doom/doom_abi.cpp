// SPDX-License-Identifier: Apache-2.0
#include "doom_abi.h"

#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "call_limit.h"
#include "doom_checks.h"
#include "doom_symbols.h"
#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

constexpr int kRgb = 1;     // vizdoom::RGB24
constexpr int kGray = 8;    // vizdoom::GRAY8
constexpr int kPlayer = 0;  // vizdoom::PLAYER
constexpr std::int32_t kFramesPerSecond = 35;

// Replaces the shared memory of a game that has none yet. When ViZDoom drops a game that did not
// start, it reads there whether an episode is recorded, and would otherwise follow a null pointer.
alignas(std::max_align_t) std::array<std::byte, 4 << 20> no_shared_state;

// Lets games start one at a time. vizdoom's threads fork, and other libraries have handlers that
// run before a fork. A handler that joins threads, such as OpenBLAS's, never returns when two
// threads call it at once.
std::mutex starting;

// Tells if effects of sound, such as reverberation, end games: OpenAL 1.19 does so by an assertion
// where it was built with assertions. Other versions play the effects.
std::atomic<bool> effects_fail{false};
constexpr const char* kNoEffects = "+snd_efx 0";

}  // namespace

bool IsDeltaButton(DoomButton button) { return LoadedDoom().is_delta(button); }

// Turns ViZDoom's exceptions into the library's own.
template <typename Call>
auto Doom::Guarded(Call&& call, std::int32_t frames) const {
  constexpr std::int32_t kFramesInASecond = 10;  // a lower bound, for the slowest game
  const std::chrono::seconds seconds = GameTimeout() + std::chrono::seconds(frames / kFramesInASecond);
  const CallLimit limit(folder_, seconds);
  try {
    return call();
  } catch (const SpecError&) {
    throw;
  } catch (const std::exception& error) {
    if (limit.expired()) {
      throw EngineError("ViZDoom: the game said nothing for " + std::to_string(seconds.count()) +
                        " s and was ended; ROLLOUTS_GAME_TIMEOUT_S is how long it may take");
    }
    const std::string words = LastWords();
    throw EngineError(std::string("ViZDoom: ") + error.what() +
                      (words.empty() ? "" : "; the game's last words: " + words));
  }
}

Doom::Doom(const DoomSetup& setup) {
  LoadedDoom().construct(storage_);
  try {
    Guarded([&] {
      Configure(setup);
      ReadFacts(setup.audio_frames);
    });
  } catch (...) {
    LoadedDoom().destroy(storage_);
    throw;
  }
}

Doom::~Doom() {
  const DoomSymbols& s = LoadedDoom();
  try {
    const CallLimit limit(folder_, GameTimeout());
    // closed here, where it may throw: in ViZDoom's destructor an exception would end the process
    s.close(storage_);
  } catch (...) {
  }
  s.destroy(storage_);
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

void Doom::Configure(const DoomSetup& setup) {
  const DoomSymbols& s = LoadedDoom();
  void* const game = storage_;
  s.load_config(game, setup.config_file);
  if (s.get_mode(game) != kPlayer) {
    throw EngineError(setup.config_file + " has another mode than PLAYER, the only one in which a "
                      "game waits for its actions");
  }
  if (!setup.wad_file.empty()) s.set_wad_path(game, setup.wad_file);
  if (!setup.iwad_file.empty()) s.set_iwad_path(game, setup.iwad_file);
  if (!setup.map.empty()) s.set_map(game, setup.map);
  if (!setup.game_args.empty()) s.add_game_args(game, setup.game_args);
  CheckDoomPlan({s.get_map(game), s.get_wad_path(game), s.get_iwad_path(game), s.get_game_args(game)},
                std::filesystem::path(s.game).parent_path().string());
  if (setup.skill >= 0) s.set_skill(game, setup.skill);
  if (setup.episode_timeout >= 0) s.set_timeout(game, static_cast<unsigned>(setup.episode_timeout));
  if (setup.screen_resolution >= 0) s.set_resolution(game, setup.screen_resolution);
  // any other format becomes RGB24, as in vizdoom's Gymnasium environments
  const bool gray = setup.gray || (!setup.colour && s.get_format(game) == kGray);
  s.set_format(game, gray ? kGray : kRgb);
  s.set_window(game, false);
  s.set_audio(game, !setup.only_screen && (setup.audio || s.has_audio(game)));
  s.set_audio_frames(game, setup.audio_frames);
  has_effects_ = s.has_audio(game) && !effects_fail;
  if (s.has_audio(game) && !has_effects_) s.add_game_args(game, kNoEffects);
  s.set_notifications(game, false);
  s.set_depth(game, !setup.only_screen && (setup.depth || s.has_depth(game)));
  s.set_labels(game, !setup.only_screen && (setup.labels || s.has_labels(game)));
  s.set_automap(game, !setup.only_screen && (setup.automap || s.has_automap(game)));
}

void Doom::ReadFacts(std::int32_t audio_frames) {
  const DoomSymbols& s = LoadedDoom();
  void* const game = storage_;
  facts_.height = s.height(game);
  facts_.width = s.width(game);
  facts_.channels = s.get_format(game) == kGray ? 1 : 3;
  facts_.num_variables = static_cast<std::int32_t>(s.num_variables(game));
  facts_.depth = s.has_depth(game);
  facts_.labels = s.has_labels(game);
  facts_.automap = s.has_automap(game);
  // as in vizdoom's Gymnasium environments, whose audio_frames is the number of frames in a step
  if (s.has_audio(game)) facts_.audio_samples = s.audio_rate(game) / kFramesPerSecond * audio_frames;
  for (const DoomButton button : s.buttons(game)) {
    (s.is_delta(button) ? facts_.delta_buttons : facts_.binary_buttons).push_back(button);
  }
  std::vector<DoomButton> all = facts_.delta_buttons;
  all.insert(all.end(), facts_.binary_buttons.begin(), facts_.binary_buttons.end());
  s.set_buttons(game, all);
}

// Makes a folder for the game, because it writes settings and other files where it runs.
void Doom::MakeFolder() {
  const auto name = "rollouts-doom-" + std::to_string(getpid()) + "-XXXXXX";
  std::string folder = (std::filesystem::temp_directory_path() / name).string();
  if (!mkdtemp(folder.data())) {
    throw EngineError("no folder for a game can be made: " + folder);
  }
  folder_ = folder;
  std::filesystem::create_symlink(LoadedDoom().guardian, folder + "/run");
  std::filesystem::create_symlink(LoadedDoom().game, folder + "/game");
}

// The last line that the game printed.
std::string Doom::LastWords() const {
  if (folder_.empty()) return "";
  std::ifstream log(folder_ + "/log");
  std::string last;
  for (std::string line; std::getline(log, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

void Doom::Start(std::uint32_t seed) {
  const DoomSymbols& s = LoadedDoom();
  Guarded([&] {
    MakeFolder();
    s.set_game_path(storage_, folder_ + "/run");
    s.set_ini_path(storage_, folder_ + "/vizdoom.ini");
    s.set_seed(storage_, seed);
    // see no_shared_state
    void* const shared = no_shared_state.data();
    auto* const controller = static_cast<std::byte*>(DoomControllerOf(storage_));
    std::memcpy(controller + s.shared_state_offset, &shared, sizeof(shared));
    const std::lock_guard lock(starting);
    s.init(storage_);
  });
  // these sizes would be unlikely with a layout other than DoomStateLayout
  const auto state = Guarded([&] { return s.get_state(storage_); });
  const auto pixels = static_cast<std::size_t>(facts_.height) * facts_.width;
  const auto fits = [](const DoomStateLayout::Image& image, bool on, std::size_t size) {
    return on ? image && image->size() == size : !image;
  };
  const bool known =
      !state || (fits(state->screen, true, pixels * facts_.channels) &&
                 fits(state->depth, facts_.depth, pixels) &&
                 fits(state->labels, facts_.labels, pixels) &&
                 fits(state->automap, facts_.automap, pixels * facts_.channels) &&
                 (facts_.audio_samples > 0
                      ? state->audio && state->audio->size() == std::size_t{2} * facts_.audio_samples
                      : !state->audio) &&
                 state->variables.size() == static_cast<std::size_t>(facts_.num_variables));
  if (!known) {
    throw EngineError(std::string("vizdoom::GameState has an unexpected layout: rollouts was tested "
                                  "with vizdoom") + kTestedDoomVersions);
  }
}

bool Doom::CanDoWithoutEffects() const {
  if (!has_effects_ || LastWords().find("Assertion") == std::string::npos) return false;
  effects_fail = true;
  return true;
}

void Doom::NewEpisode(std::uint32_t seed) {
  Guarded([&] {
    LoadedDoom().set_seed(storage_, seed);
    LoadedDoom().new_episode(storage_, "");
  });
}

double Doom::Act(const std::vector<double>& buttons, std::int32_t frames) {
  return Guarded([&] {
    return LoadedDoom().make_action(storage_, buttons, static_cast<unsigned>(frames));
  }, frames);
}

bool Doom::EpisodeFinished() {
  return Guarded([&] { return LoadedDoom().episode_finished(storage_); });
}

bool Doom::TimeoutReached() {
  return Guarded([&] { return LoadedDoom().timeout_reached(storage_); });
}

DoomView Doom::View() {
  const auto state = Guarded([&] { return LoadedDoom().get_state(storage_); });
  if (!state) return {};
  const auto pixels = [](const DoomStateLayout::Image& image) {
    return image ? std::span<const std::uint8_t>(*image) : std::span<const std::uint8_t>();
  };
  return {.owner = state,
          .screen = pixels(state->screen),
          .depth = pixels(state->depth),
          .labels = pixels(state->labels),
          .automap = pixels(state->automap),
          .audio = state->audio ? std::span<const std::int16_t>(*state->audio)
                                : std::span<const std::int16_t>(),
          .variables = state->variables};
}

}  // namespace rollouts
