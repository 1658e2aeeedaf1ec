// SPDX-License-Identifier: Apache-2.0
// Atari 2600 games on the Arcade Learning Environment, preprocessed as by
// ale_py.vector_env.AtariVectorEnv (ale-py 0.12.1), from which the names of the options are taken.
// With the same options, and without random draws, observations, rewards, ends and lives are equal
// to it bit for bit, in every autoreset mode. Only `episodic_life` has another meaning: True is as
// in EnvPool, and "restart" is ale-py's True.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rollouts/core/env.h"
#include "rollouts/core/switch.h"
#include "rollouts/envs/atari/joystick.h"

namespace rollouts {

class Atari {
 public:
  struct Config {
    std::string rom_path;           // set by rollouts/families/atari.py from the id
    std::string game_engine = "ale";  // set there too: the engine that "auto" means for this game
    // the emulator: "native" (our own console), "ale" (ale-py's), "auto" (native, for the games in
    // which it was compared with ale-py frame by frame and equal). All data are the same
    std::string engine = "auto";
    std::int32_t frameskip = 4;     // frames per step, 1 or more, all with the same action
    std::int32_t stack_num = 4;     // frames in an observation, 1 or more; zeros before the first
    // frames ("screen"), or the 128 bytes of the console's memory after each step ("ram"), as
    // uint8 (stack_num, 128); the options of frames then have no effect
    std::string obs_type = "screen";
    std::int32_t img_height = 84;   // pixels of a frame, 1 to 4096; most games have 210
    std::int32_t img_width = 84;    // pixels of a frame, 1 to 4096; games have 160
    bool use_inter_area_resize = true;  // by area, as OpenCV's INTER_AREA; else bilinear
    bool grayscale = true;          // one channel; else RGB: one more axis of 3
    bool maxpool = true;            // pixelwise maximum of a step's last two frames
    // an episode starts after fewer than noop_max frames of no-op; FIRE counts as one
    std::int32_t noop_max = 30;
    bool use_fire_reset = true;     // press FIRE first, if the action set has it

    // A lost life ends the episode; with true or "continue" the next episode continues the same
    // game, with "restart" it is a new game. The same game continues after one step of no-op (and
    // one of FIRE where use_fire_reset applies), as in the DeepMind wrappers; in EnvPool these are
    // single frames and not steps. reset() starts a new game. ale-py's True is "restart".
    Switch episodic_life = false;
    // A lost life sets `terminated`, and nothing else, as in ale-py. The episode goes on, with its
    // return, its length and its time limit, and the next step is one of the game: in next-step
    // mode there is no row for an autoreset, in same-step mode final_obs equals the observation.
    bool life_loss_info = false;

    bool reward_clipping = true;    // clips a step's reward to [-1, 1]
    double repeat_action_probability = 0.25;  // chance that a frame repeats the last action, 0 to 1
    bool full_action_space = false;  // all 18 actions of the joystick, else what the game uses
    // actions are (radius, theta, fire) in float32, from [0, -pi, 0] to [1, pi, 1]: the joystick in
    // polar coordinates, and how far a paddle turns. All 18 combinations can be pressed, whatever
    // full_action_space is. For actions beyond those bounds, see joystick.h.
    bool continuous = false;
    // with continuous: x = radius cos(theta), y = radius sin(theta) and fire press beyond it; 0 to 1
    double continuous_action_threshold = 0.5;
    // one from the game's list; -1: the game's default. Objects that a mode places at random
    // (Adventure's mode 2) are in the same places in every episode
    std::int32_t mode = -1;
    std::int32_t difficulty = -1;    // one from the game's list; -1: the game's default
    bool ram_info = false;           // gives the info "ram", the 128 bytes of the console's memory
  };
  using Action = std::uint8_t;  // bytes of an int32 or, with `continuous`, of kJoystickAxes floats
  using Obs = std::uint8_t;

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("rom_path", config.rom_path);
    visit("game_engine", config.game_engine);
    visit("engine", config.engine);
    visit("frameskip", config.frameskip);
    visit("stack_num", config.stack_num);
    visit("obs_type", config.obs_type);
    visit("img_height", config.img_height);
    visit("img_width", config.img_width);
    visit("use_inter_area_resize", config.use_inter_area_resize);
    visit("grayscale", config.grayscale);
    visit("maxpool", config.maxpool);
    visit("noop_max", config.noop_max);
    visit("use_fire_reset", config.use_fire_reset);
    visit("episodic_life", config.episodic_life);
    visit("life_loss_info", config.life_loss_info);
    visit("reward_clipping", config.reward_clipping);
    visit("repeat_action_probability", config.repeat_action_probability);
    visit("full_action_space", config.full_action_space);
    visit("continuous", config.continuous);
    visit("continuous_action_threshold", config.continuous_action_threshold);
    visit("mode", config.mode);
    visit("difficulty", config.difficulty);
    visit("ram_info", config.ram_info);
  }

  // Throws SpecError for options out of range, and EngineError for a ROM or an ALE that cannot be
  // used.
  static EnvSpec MakeSpec(const Config& config);

  // Cheap: the emulator, which takes 70 ms to load, is made in the first Reset, so that a pool's
  // threads load theirs at the same time.
  explicit Atari(const Config& config);
  ~Atari();

  void Reset(Rng& rng, bool forced);
  StepResult Step(const Action* action, Rng& rng);
  void Observe(Obs* obs) const;
  // lives; raw_reward (before clipping); frame_number, of all frames since the stream was seeded,
  // including those before an episode's first observation; episode_frame_number, of this game; with
  // ram_info: ram. A reset writes them too
  void WriteInfo(double* values) const;
  // Writes the screen in colour, (height, width, 3), and returns height and width. The screen is
  // that of the last frame emulated; Observe does not show the frame that ends a game. Between
  // LoadState and the next Step the screen is two frames ahead, because ALE saves none.
  std::array<std::int32_t, 2> Render(std::vector<std::uint8_t>& rgb) const;
  // ALE saves no frame buffers: parts of the screen that the next frame does not draw are not
  // restored. Only Yars' Revenge is known to be affected, in some pixels of the first frame after a
  // LoadState, and only with a frameskip of 1, or of 2 with maxpool, where that frame is observed.
  void SaveState(std::vector<std::uint8_t>& out) const;
  void LoadState(std::span<const std::uint8_t> state);

 private:
  struct Engine;

  void Restart();
  void NewGame(Rng& rng);
  void ContinueGame(Rng& rng);
  AtariPress Read(const Action* action) const;
  double EmulateStep(const AtariPress& press, Rng& rng);
  std::int32_t EmulateFrame(const AtariPress& press, Rng& rng);

  enum class OnLifeLoss : std::uint8_t { kNothing, kContinue, kRestart };
  static OnLifeLoss RuleOf(const Switch& episodic_life);

  const Config config_;
  const OnLifeLoss on_life_loss_;
  std::unique_ptr<Engine> engine_;
  AtariPress pressed_;  // what sticky actions repeat
  std::int32_t lives_ = 0;
  double raw_reward_ = 0;
  bool game_over_ = true;
  bool life_lost_ = false;  // in the last step, with lives left
  std::int32_t frame_number_ = 0;          // stops at its largest value, as does the next
  std::int32_t episode_frame_number_ = 0;
};

}  // namespace rollouts
