// SPDX-License-Identifier: Apache-2.0
// Scenarios of ViZDoom as vizdoom.gymnasium_wrapper (vizdoom 1.3) has them: with the same seed of the
// game and the same actions, screens, game variables, rewards and ends are equal to its own. Each
// environment has a process, which runs from the first reset on. Observations are the screen alone;
// make_vec(flatten_observation=False) gives the reference's dict.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rollouts/core/env.h"
#include "rollouts/core/switch.h"

namespace rollouts {

class Vizdoom {
 public:
  struct Config {
    std::string scenario;           // set by rollouts/families/vizdoom.py from the id, as the next
    std::string scenario_map;
    std::int32_t scenario_skill = 0;
    std::int32_t scenario_buttons = 0;  // max_buttons_pressed
    bool all_parts = false;         // set by flatten_observation=False

    std::string cfg_file;           // path of a config file in place of the id's scenario
    std::string wad_file;           // path of a scenario's WAD in place of the config file's
    std::string iwad_file;          // path of a game's WAD, such as doom2.wad, in place of the config file's
    std::string doom_map;           // name of a map, such as "map01", in place of the config file's
    std::int32_t doom_skill = 0;    // 1 (easiest) to 5; 0: the config file's
    std::string game_args;          // more arguments of the game's command line
    std::int32_t frame_skip = 1;    // frames per step, 1 or more, all with the same action; 35 are a second
    // Buttons that an action may press at once. With 1 or more, actions are Discrete: all such
    // combinations, in vizdoom's order. With 0 they are MultiDiscrete, 0 or 1 for each button.
    // -1: the id's. With buttons that have an amount, actions are a Box: the amounts, then a number
    // for each other button, which is pressed above 0.5; where too many would be, those with the
    // largest numbers are.
    std::int32_t max_buttons_pressed = -1;
    // The config file's timeout sets both `terminated` and `truncated`, as in vizdoom; "alone": only
    // `truncated`, so that values are bootstrapped; false: only `terminated`
    Switch treat_episode_timeout_as_truncation = true;
    std::int32_t episode_timeout = -1;  // frames; 0: none; -1: the config file's
    std::string screen_resolution;  // such as "RES_160X120"; empty: as in the config file
    std::string screen_format;      // "RGB24" or "GRAY8"; empty: GRAY8 where the config file has it, else RGB24
    std::int32_t img_height = 0;    // pixels to which the screen is shrunk by area averaging; 0: not
    std::int32_t img_width = 0;     // as img_height
    // screens in an observation, 1 or more; above 1 they are the first axis, oldest first, with
    // zeros before the first one, and gray screens have no axis of colours
    std::int32_t stack_num = 1;
    bool depth_buffer_enabled = false;    // with flatten_observation=False: "depth", even if the config file lacks it
    bool labels_buffer_enabled = false;   // the same for "labels"
    bool automap_buffer_enabled = false;  // the same for "automap"
    // The same for "audio": the sound of a step, (samples, 2) int16; silence where the machine has no OpenAL
    bool audio_buffer_enabled = false;
  };
  // The bytes of an int32, of an int32 for each button, or of floats.
  using Action = std::uint8_t;
  using Obs = std::uint8_t;

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("scenario", config.scenario);
    visit("scenario_map", config.scenario_map);
    visit("scenario_skill", config.scenario_skill);
    visit("scenario_buttons", config.scenario_buttons);
    visit("all_parts", config.all_parts);
    visit("cfg_file", config.cfg_file);
    visit("wad_file", config.wad_file);
    visit("iwad_file", config.iwad_file);
    visit("doom_map", config.doom_map);
    visit("doom_skill", config.doom_skill);
    visit("game_args", config.game_args);
    visit("frame_skip", config.frame_skip);
    visit("max_buttons_pressed", config.max_buttons_pressed);
    visit("treat_episode_timeout_as_truncation", config.treat_episode_timeout_as_truncation);
    visit("episode_timeout", config.episode_timeout);
    visit("screen_resolution", config.screen_resolution);
    visit("screen_format", config.screen_format);
    visit("img_height", config.img_height);
    visit("img_width", config.img_width);
    visit("stack_num", config.stack_num);
    visit("depth_buffer_enabled", config.depth_buffer_enabled);
    visit("labels_buffer_enabled", config.labels_buffer_enabled);
    visit("automap_buffer_enabled", config.automap_buffer_enabled);
    visit("audio_buffer_enabled", config.audio_buffer_enabled);
  }

  // Throws SpecError for options out of range and EngineError for files that cannot be used.
  static EnvSpec MakeSpec(const Config& config);

  // Cheap: the game's process starts with the first Reset, so that the threads of a pool start
  // theirs at the same time. After the process has ended, the next Reset starts it again.
  explicit Vizdoom(const Config& config);
  ~Vizdoom();

  void Reset(Rng& rng, bool forced);
  StepResult Step(const Action* action, Rng& rng);
  void Observe(Obs* obs) const;
  // game_seed of this episode, then gamevariables, which are zeros once the episode has ended
  void WriteInfo(double* values) const;
  // The game's screen, (height, width, 3): the last one that was shown.
  std::array<std::int32_t, 2> Render(std::vector<std::uint8_t>& rgb) const;
  // Saves the episode's seed and its actions. LoadState plays them again, which takes as long as
  // the first time.
  void SaveState(std::vector<std::uint8_t>& out) const;
  void LoadState(std::span<const std::uint8_t> state);

 private:
  struct Engine;

  void BeginEpisode(std::uint32_t seed);
  void StartGame(std::uint32_t seed);
  StepResult Play(const Action* action);
  void TakeView();
  void ObserveParts(Obs* obs) const;

  const Config config_;
  std::unique_ptr<Engine> engine_;
  std::uint32_t seed_ = 0;
  std::vector<std::uint8_t> actions_;  // since the episode began
};

}  // namespace rollouts
