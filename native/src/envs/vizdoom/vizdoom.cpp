// SPDX-License-Identifier: Apache-2.0
#include "rollouts/envs/vizdoom/vizdoom.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>

#include "buttons.h"
#include "engines/doom/doom_abi.h"
#include "rollouts/envs/atari/area_resize.h"
#include "rollouts/envs/atari/frame_ring.h"
#include "rollouts/support/errors.h"
#include "rollouts/support/state.h"

namespace rollouts {
namespace {

constexpr std::int32_t kDoomFrameCostNs = 60'000;  // Basic at 160x120 in gray, one core of an EPYC 9005
constexpr std::int32_t kMaxVariables = EnvSpec::kMaxInfoValues - 1;

// vizdoom::ScreenResolution, in its order.
constexpr const char* kResolutions[] = {
    "RES_160X120",  "RES_200X125",   "RES_200X150",   "RES_256X144",   "RES_256X160",
    "RES_256X192",  "RES_320X180",   "RES_320X200",   "RES_320X240",   "RES_320X256",
    "RES_400X225",  "RES_400X250",   "RES_400X300",   "RES_512X288",   "RES_512X320",
    "RES_512X384",  "RES_640X360",   "RES_640X400",   "RES_640X480",   "RES_800X450",
    "RES_800X500",  "RES_800X600",   "RES_1024X576",  "RES_1024X640",  "RES_1024X768",
    "RES_1280X720", "RES_1280X800",  "RES_1280X960",  "RES_1280X1024", "RES_1400X787",
    "RES_1400X875", "RES_1400X1050", "RES_1600X900",  "RES_1600X1000", "RES_1600X1200",
    "RES_1920X1080"};

void CheckRange(const char* option, std::int32_t value, std::int32_t least, std::int32_t most) {
  if (value >= least && value <= most) return;
  const bool open = most == std::numeric_limits<std::int32_t>::max();
  throw SpecError(std::string(option) + " is " + std::to_string(value) + ", expected " +
                  std::to_string(least) + (open ? " or more" : " to " + std::to_string(most)));
}

std::int32_t ResolutionOf(const std::string& name) {
  if (name.empty()) return -1;
  const auto* found = std::find(std::begin(kResolutions), std::end(kResolutions), name);
  if (found == std::end(kResolutions)) {
    throw SpecError("screen_resolution is '" + name +
                    "', expected one of vizdoom.ScreenResolution, such as 'RES_160X120' or "
                    "'RES_640X480'");
  }
  return static_cast<std::int32_t>(found - std::begin(kResolutions));
}

void CheckDoomConfig(const Vizdoom::Config& config) {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  CheckRange("frame_skip", config.frame_skip, 1, kMost);
  CheckRange("max_buttons_pressed", config.max_buttons_pressed, -1, kMost);
  CheckRange("doom_skill", config.doom_skill, 0, 5);
  CheckRange("episode_timeout", config.episode_timeout, -1, kMost);
  CheckRange("img_height", config.img_height, 0, kMost);
  CheckRange("img_width", config.img_width, 0, kMost);
  CheckRange("stack_num", config.stack_num, 1, 1024);
  if (const auto& format = config.screen_format; !format.empty() && format != "RGB24" && format != "GRAY8") {
    throw SpecError("screen_format is '" + format + "', expected 'RGB24' or 'GRAY8'");
  }
  const Switch& timeout = config.treat_episode_timeout_as_truncation;
  if (const auto* name = std::get_if<std::string>(&timeout); name && *name != "alone") {
    throw SpecError("option 'treat_episode_timeout_as_truncation' must be a bool or 'alone', got '" +
                    *name + "'");
  }
  if (config.all_parts && (config.stack_num > 1 || config.img_height > 0 || config.img_width > 0)) {
    throw SpecError("stack_num, img_height and img_width are for screens alone: leave them out with "
                    "flatten_observation=False");
  }
  if (config.cfg_file.empty() && config.scenario.empty()) {
    throw SpecError("ViZDoom-v0 needs cfg_file, the path of a config file of ViZDoom");
  }
}

// An absolute path, because a game runs in another folder.
std::string FileOf(const char* option, const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    throw SpecError(std::string(option) + " is '" + path + "', which is no file");
  }
  return std::filesystem::absolute(path).string();
}

DoomSetup SetupOf(const Vizdoom::Config& config) {
  CheckDoomConfig(config);
  const bool own = !config.cfg_file.empty();
  const std::int32_t skill = config.doom_skill > 0 ? config.doom_skill : config.scenario_skill;
  return {.config_file = FileOf("cfg_file", own ? config.cfg_file : config.scenario),
          .wad_file = FileOf("wad_file", config.wad_file),
          .iwad_file = FileOf("iwad_file", config.iwad_file),
          .map = config.doom_map.empty() ? config.scenario_map : config.doom_map,
          .game_args = config.game_args,
          .skill = skill > 0 ? skill : -1,
          .episode_timeout = config.episode_timeout,
          .screen_resolution = ResolutionOf(config.screen_resolution),
          .gray = config.screen_format == "GRAY8",
          .colour = config.screen_format == "RGB24",
          .only_screen = !config.all_parts,
          .depth = config.depth_buffer_enabled,
          .labels = config.labels_buffer_enabled,
          .automap = config.automap_buffer_enabled,
          .audio = config.audio_buffer_enabled,
          .audio_frames = config.frame_skip};
}

std::int32_t MaxPressed(const Vizdoom::Config& config) {
  return config.max_buttons_pressed >= 0 ? config.max_buttons_pressed : config.scenario_buttons;
}

// Height and width of an observed screen.
std::array<std::int32_t, 2> SizeOf(const Vizdoom::Config& config, const DoomFacts& facts) {
  return {config.img_height > 0 ? config.img_height : facts.height,
          config.img_width > 0 ? config.img_width : facts.width};
}

std::int64_t AlignedUp(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// The parts of the reference's dict, in its order, as bytes one after the other.
void AddParts(const DoomFacts& facts, EnvSpec& spec) {
  std::int64_t bytes = 0;
  const auto add = [&](const char* name, std::int32_t channels) {
    spec.parts[spec.num_parts++] = {
        .name = name, .ndim = 3, .shape = {facts.height, facts.width, channels}, .dtype = DType::kUint8};
    bytes += std::int64_t{facts.height} * facts.width * channels;
  };
  add("screen", facts.channels);
  if (facts.depth) add("depth", 1);
  if (facts.labels) add("labels", 1);
  if (facts.automap) add("automap", facts.channels);
  if (facts.audio_samples > 0) {
    bytes = AlignedUp(bytes, 2);
    spec.parts[spec.num_parts++] = {
        .name = "audio", .ndim = 2, .shape = {facts.audio_samples, 2}, .dtype = DType::kInt16};
    bytes += 4 * std::int64_t{facts.audio_samples};
  }
  if (facts.num_variables > 0) {
    bytes = AlignedUp(bytes, 4);
    spec.parts[spec.num_parts++] = {
        .name = "gamevariables", .ndim = 1, .shape = {facts.num_variables}, .dtype = DType::kFloat32};
    bytes += 4 * std::int64_t{facts.num_variables};
  }
  spec.observation.ndim = 1;
  spec.observation.shape[0] = static_cast<std::int32_t>(AlignedUp(bytes, 4));
}

void SetScreenShape(const Vizdoom::Config& config, const DoomFacts& facts, SpaceSpec& space) {
  const auto [height, width] = SizeOf(config, facts);
  if (config.stack_num > 1) space.shape[space.ndim++] = config.stack_num;
  space.shape[space.ndim++] = height;
  space.shape[space.ndim++] = width;
  if (config.stack_num == 1 || facts.channels > 1) space.shape[space.ndim++] = facts.channels;
}

}  // namespace

struct Vizdoom::Engine {
  explicit Engine(const Config& config)
      : setup(SetupOf(config)),
        game(std::make_unique<Doom>(setup)),
        facts(game->facts()),
        actions(facts, MaxPressed(config)),
        action_bytes(actions.bytes()) {
    const auto [height, width] = SizeOf(config, facts);
    row_bytes = static_cast<std::size_t>(width) * facts.channels;
    num_rows = height;
    if (height != facts.height || width != facts.width) {
      resize.emplace(facts.height, facts.width, height, width, facts.channels);
    }
    if (resize || config.stack_num > 1) frames.emplace(config.stack_num, height * row_bytes);
  }

  const DoomSetup setup;
  std::unique_ptr<Doom> game;  // null while its process could not be started again
  const DoomFacts facts;
  const DoomActions actions;
  const std::int64_t action_bytes;
  bool started = false;
  DoomView view;   // the present one
  DoomView shown;  // the last one that was not empty
  std::size_t row_bytes = 0;
  std::int32_t num_rows = 0;
  std::optional<AreaResize> resize;
  std::optional<FrameRing> frames;  // none if the screen is observed unchanged
  std::vector<double> buttons;
};

EnvSpec Vizdoom::MakeSpec(const Config& config) {
  // reads the config file; no game starts
  const Engine engine(config);
  const DoomFacts& facts = engine.facts;
  EnvSpec spec;
  spec.observation.dtype = DType::kUint8;
  spec.observation.low[0] = 0;
  spec.observation.high[0] = 255;
  if (config.all_parts) {
    AddParts(facts, spec);
  } else {
    SetScreenShape(config, facts, spec.observation);
  }
  spec.action = engine.actions.space();
  spec.step_cost_ns = EnvSpec::CostNs(kDoomFrameCostNs, config.frame_skip);
  spec.infos[spec.num_infos++] = {"game_seed", DType::kFloat64};
  if (facts.num_variables > kMaxVariables) {
    throw SpecError("the config file has " + std::to_string(facts.num_variables) +
                    " available_game_variables, expected at most " + std::to_string(kMaxVariables));
  }
  if (facts.num_variables > 0) {
    spec.infos[spec.num_infos++] = {"gamevariables", DType::kFloat64, facts.num_variables};
  }
  spec.reset_infos = true;
  return spec;
}

Vizdoom::Vizdoom(const Config& config)
    : config_(config), engine_(std::make_unique<Engine>(config)) {}

Vizdoom::~Vizdoom() = default;

void Vizdoom::Reset(Rng& rng, bool /*forced*/) { BeginEpisode(rng.NextWord()); }

void Vizdoom::BeginEpisode(std::uint32_t seed) {
  Engine& engine = *engine_;
  engine.view = {};
  actions_.clear();
  seed_ = seed;
  try {
    if (engine.started) {
      engine.game->NewEpisode(seed);
    } else {
      StartGame(seed);
      engine.started = true;
    }
    if (engine.frames) engine.frames->Clear();
    TakeView();
  } catch (...) {
    // the next reset starts a new process
    engine.started = false;
    engine.game.reset();
    throw;
  }
}

void Vizdoom::StartGame(std::uint32_t seed) {
  Engine& engine = *engine_;
  for (;;) {
    if (!engine.game) engine.game = std::make_unique<Doom>(engine.setup);
    try {
      return engine.game->Start(seed);
    } catch (const EngineError&) {
      if (!engine.game->CanDoWithoutEffects()) throw;
      engine.game.reset();
    }
  }
}

StepResult Vizdoom::Step(const Action* action, Rng&) { return Play(action); }

StepResult Vizdoom::Play(const Action* action) {
  Engine& engine = *engine_;
  if (!engine.started) throw EngineError("there is no game: the reset that was to start it failed");
  if (!engine.actions.Read(action, engine.buttons)) throw SpecError("has an action out of range");
  try {
    const double reward = engine.game->Act(engine.buttons, config_.frame_skip);
    StepResult result = StepResult::Of(reward, engine.game->EpisodeFinished());
    if (result.terminated && engine.game->TimeoutReached()) {
      const Switch& rule = config_.treat_episode_timeout_as_truncation;
      const bool* const both = std::get_if<bool>(&rule);
      result.cuts_off = !both || *both;
      result.terminated = both != nullptr;
    }
    TakeView();
    actions_.insert(actions_.end(), action, action + engine.action_bytes);
    return result;
  } catch (...) {
    engine.started = false;
    engine.game.reset();
    throw;
  }
}

// Takes the game's present view, and adds it to the stack if there is one.
void Vizdoom::TakeView() {
  Engine& engine = *engine_;
  engine.view = engine.game->View();
  if (engine.view.owner) engine.shown = engine.view;
  if (!engine.frames) return;
  std::uint8_t* const frame = engine.frames->Push();
  const std::size_t bytes = engine.num_rows * engine.row_bytes;
  if (!engine.view.owner) {
    std::fill_n(frame, bytes, std::uint8_t{0});
  } else if (!engine.resize) {
    std::memcpy(frame, engine.view.screen.data(), bytes);
  } else {
    engine.resize->BeginImage();
    for (std::int32_t y = 0; y < engine.num_rows; ++y) {
      engine.resize->ComputeRow(engine.view.screen.data(), y, frame + y * engine.row_bytes);
    }
  }
}

void Vizdoom::Observe(Obs* obs) const {
  const Engine& engine = *engine_;
  if (config_.all_parts) {
    ObserveParts(obs);
  } else if (engine.frames) {
    engine.frames->CopyTo(obs);
  } else if (engine.view.owner) {
    std::ranges::copy(engine.view.screen, obs);
  } else {
    // a game that has ended shows zeros, as in the reference
    std::fill_n(obs, engine.num_rows * engine.row_bytes, std::uint8_t{0});
  }
}

void Vizdoom::ObserveParts(Obs* obs) const {
  const Engine& engine = *engine_;
  const DoomFacts& facts = engine.facts;
  const std::int64_t pixels = std::int64_t{facts.height} * facts.width;
  std::int64_t at = 0;
  const auto put = [&](std::span<const std::uint8_t> image, std::int64_t bytes) {
    engine.view.owner ? std::memcpy(obs + at, image.data(), bytes) : std::memset(obs + at, 0, bytes);
    at += bytes;
  };
  put(engine.view.screen, pixels * facts.channels);
  if (facts.depth) put(engine.view.depth, pixels);
  if (facts.labels) put(engine.view.labels, pixels);
  if (facts.automap) put(engine.view.automap, pixels * facts.channels);
  const auto align = [&](std::int64_t unit) {
    while (at % unit != 0) obs[at++] = 0;
  };
  if (facts.audio_samples > 0) {
    align(2);
    put({reinterpret_cast<const std::uint8_t*>(engine.view.audio.data()),
         engine.view.audio.size_bytes()},
        4 * std::int64_t{facts.audio_samples});
  }
  align(4);
  for (std::int32_t i = 0; i < facts.num_variables; ++i, at += 4) {
    const float value = engine.view.owner ? static_cast<float>(engine.view.variables[i]) : 0.0f;
    std::memcpy(obs + at, &value, sizeof(value));
  }
}

void Vizdoom::WriteInfo(double* values) const {
  const Engine& engine = *engine_;
  *values++ = seed_;
  for (std::int32_t i = 0; i < engine.facts.num_variables; ++i) {
    values[i] = engine.view.owner ? engine.view.variables[i] : 0;
  }
}

std::array<std::int32_t, 2> Vizdoom::Render(std::vector<std::uint8_t>& rgb) const {
  const Engine& engine = *engine_;
  if (!engine.shown.owner) throw EngineError("there is no game to draw: none has started");
  const auto screen = engine.shown.screen;
  if (engine.facts.channels == 3) {
    rgb.assign(screen.begin(), screen.end());
  } else {
    rgb.clear();
    for (const std::uint8_t gray : screen) rgb.insert(rgb.end(), 3, gray);
  }
  return {engine.facts.height, engine.facts.width};
}

void Vizdoom::SaveState(std::vector<std::uint8_t>& out) const {
  if (!engine_->started) throw EngineError("there is no game to save: its process has ended");
  StateWriter writer(out);
  writer.Put(seed_);
  writer.PutBytes(actions_);
}

void Vizdoom::LoadState(std::span<const std::uint8_t> state) {
  Engine& engine = *engine_;
  StateReader reader(state);
  const auto seed = reader.Get<std::uint32_t>();
  const auto rest = reader.rest();
  const std::vector<std::uint8_t> actions(rest.begin(), rest.end());
  if (actions.size() % engine.action_bytes != 0) throw SpecError("is longer than its parts");
  // checked before anything changes
  for (std::size_t i = 0; i < actions.size(); i += engine.action_bytes) {
    if (!engine.actions.Read(&actions[i], engine.buttons)) {
      throw SpecError("has an action out of range");
    }
  }
  BeginEpisode(seed);
  for (std::size_t i = 0; i < actions.size(); i += engine.action_bytes) Play(&actions[i]);
}

}  // namespace rollouts
