// SPDX-License-Identifier: Apache-2.0
#include "rollouts/envs/atari/atari.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "emulator.h"
#include "game.h"
#include "observation.h"
#include "rollouts/support/errors.h"
#include "rollouts/support/options.h"
#include "rollouts/support/state.h"

namespace rollouts {
namespace {

constexpr std::int32_t kRamBytes = 128;
constexpr std::int32_t kFrameCostNs = 46'000;  // Pong, one core of an EPYC 9005
constexpr AtariPress kNothing{kAleNoop};
constexpr AtariPress kFire{kAleFire};

void CheckAtLeast(const char* option, std::int32_t value, std::int32_t least) {
  if (value < least) {
    throw SpecError(std::string(option) + " is " + std::to_string(value) + ", expected " +
                    std::to_string(least) + " or more");
  }
}

void CheckFromZeroToOne(const char* option, double value) {
  if (!(value >= 0.0 && value <= 1.0)) {
    throw SpecError(std::string(option) + " is " + std::to_string(value) +
                    ", expected a number from 0 to 1");
  }
}

void CheckConfig(const Atari::Config& config) {
  CheckAtLeast("frameskip", config.frameskip, 1);
  CheckAtLeast("stack_num", config.stack_num, 1);
  CheckAtLeast("noop_max", config.noop_max, 0);
  CheckFromZeroToOne("repeat_action_probability", config.repeat_action_probability);
  CheckFromZeroToOne("continuous_action_threshold", config.continuous_action_threshold);
  ConfigCheck().OneOf("engine", config.engine, {"auto", "native", "ale"});
  ConfigCheck().OneOf("obs_type", config.obs_type, {"screen", "ram"});
  if (const auto* name = std::get_if<std::string>(&config.episodic_life)) {
    if (*name != "continue" && *name != "restart") {
      throw SpecError("option 'episodic_life' must be a bool, 'continue' or 'restart', got '" +
                      *name + "'");
    }
  }
}

void CountUp(std::int32_t& count, std::int32_t by = 1) {
  // with endless frames, the count stops before it would overflow
  if (count <= std::numeric_limits<std::int32_t>::max() - by) count += by;
}

// The space of continuous actions, with ale-py's order, bounds and dtype.
SpaceSpec ContinuousActions() {
  return {.dtype = DType::kFloat32,
          .ndim = 1,
          .shape = {kJoystickAxes},
          .elementwise = true,
          .low = {0, -kPi, 0},
          .high = {1, kPi, 1}};
}

SpaceSpec DiscreteActions(const std::vector<AleAction>& actions) {
  return {.dtype = DType::kInt64, .n = static_cast<std::int32_t>(actions.size())};
}

}  // namespace

struct Atari::Engine {
  explicit Engine(const Config& config)
      : game(AtariGame::Get(config.rom_path, config.mode, config.difficulty)),
        is_native((config.engine == "auto" ? config.game_engine : config.engine) == "native"),
        // a joystick reaches every action
        actions(config.full_action_space || config.continuous ? game->legal_actions()
                                                              : game->minimal_actions()),
        observation(config, *game) {
    fires_at_start = config.use_fire_reset &&
                     std::find(actions.begin(), actions.end(), kAleFire) != actions.end();
  }

  // Makes the emulator, which takes 70 ms with ALE.
  void NeedEmulator() {
    if (!emulator) emulator = is_native ? NewNativeEmulator(game) : NewAleEmulator(game);
  }

  const std::shared_ptr<const AtariGame> game;
  const bool is_native;
  const std::vector<AleAction>& actions;  // the game's
  AtariObservation observation;
  bool fires_at_start = false;
  std::unique_ptr<AtariEmulator> emulator;  // null before the first Reset
};

EnvSpec Atari::MakeSpec(const Config& config) {
  CheckConfig(config);
  // loads the game, unless it is loaded already: the actions depend on the ROM
  const Engine engine(config);
  EnvSpec spec;
  spec.observation = AtariObservation::Space(config);
  spec.action = config.continuous ? ContinuousActions() : DiscreteActions(engine.actions);
  spec.step_cost_ns = EnvSpec::CostNs(kFrameCostNs, config.frameskip);
  // infos in the order of WriteInfo
  spec.num_infos = 4;
  spec.infos[0] = {"lives", DType::kInt32};
  spec.infos[1] = {"raw_reward", DType::kFloat64};
  spec.infos[2] = {"frame_number", DType::kInt32};
  spec.infos[3] = {"episode_frame_number", DType::kInt32};
  if (config.ram_info) spec.infos[spec.num_infos++] = {"ram", DType::kInt32, kRamBytes};
  spec.reset_infos = true;
  return spec;
}

Atari::Atari(const Config& config)
    : config_((CheckConfig(config), config)),
      on_life_loss_(RuleOf(config.episodic_life)),
      engine_(std::make_unique<Engine>(config)) {}

Atari::~Atari() = default;

Atari::OnLifeLoss Atari::RuleOf(const Switch& episodic_life) {
  if (const auto* name = std::get_if<std::string>(&episodic_life)) {
    return *name == "restart" ? OnLifeLoss::kRestart : OnLifeLoss::kContinue;
  }
  // True means EnvPool's rule: a lost life ends an episode, but not the game
  return std::get<bool>(episodic_life) ? OnLifeLoss::kContinue : OnLifeLoss::kNothing;
}

void Atari::Reset(Rng& rng, bool forced) {
  engine_->NeedEmulator();

  if (rng.episode() == 0) frame_number_ = engine_->game->loading_frames();
  // game_goes_on: the last episode ended with the loss of a life, not with the end of the game
  const bool game_goes_on = !forced && !game_over_ && life_lost_;
  life_lost_ = false;
  raw_reward_ = 0;
  if (game_goes_on && on_life_loss_ == OnLifeLoss::kContinue) {
    ContinueGame(rng);
  } else {
    NewGame(rng);
  }
}

void Atari::Restart() {
  engine_->emulator->Restart();
  pressed_ = kNothing;
  episode_frame_number_ = engine_->game->start_frames();
  CountUp(frame_number_, episode_frame_number_);
}

void Atari::NewGame(Rng& rng) {
  AtariEmulator& emulator = *engine_->emulator;
  // drawn first, so that the number does not depend on the game
  const std::int32_t noops =
      config_.noop_max > 0 ? static_cast<std::int32_t>(rng.Below(config_.noop_max)) : 0;

  Restart();
  if (engine_->fires_at_start) EmulateFrame(kFire, rng);
  // FIRE counts as the first no-op
  for (std::int32_t i = engine_->fires_at_start ? 1 : 0; i < noops; ++i) {
    EmulateFrame(kNothing, rng);
    // no-ops alone may end a game: it is started again, and the rest of the no-ops follow
    if (emulator.GameOver()) Restart();
  }

  engine_->observation.Clear();
  engine_->observation.CaptureLast(emulator);
  engine_->observation.Push(emulator);
  lives_ = emulator.Lives();
  game_over_ = false;
}

void Atari::ContinueGame(Rng& rng) {
  EmulateStep(kNothing, rng);
  // some games wait for FIRE after each life
  if (engine_->fires_at_start && !game_over_) EmulateStep(kFire, rng);
  // these steps, made to continue the game, may end it
  if (game_over_) NewGame(rng);
  life_lost_ = false;
}

// The bytes that the pool checked against the action space.
AtariPress Atari::Read(const Action* action) const {
  if (config_.continuous) {
    float axes[kJoystickAxes];
    std::memcpy(axes, action, sizeof(axes));
    return PressOf(axes, static_cast<float>(config_.continuous_action_threshold));
  }
  std::int32_t index;
  // an index into the game's actions, which the pool stores as int32
  std::memcpy(&index, action, sizeof(index));
  return {engine_->actions.at(static_cast<std::size_t>(index))};
}

StepResult Atari::Step(const Action* action, Rng& rng) {
  const double score = EmulateStep(Read(action), rng);
  raw_reward_ = score;
  StepResult result;
  result.reward = config_.reward_clipping ? std::clamp(score, -1.0, 1.0) : score;
  result.terminated = game_over_ || (on_life_loss_ != OnLifeLoss::kNothing && life_lost_);
  // the end is only reported: the game goes on in every autoreset mode
  result.marks_end = config_.life_loss_info && life_lost_;
  // statistics count the game's own reward, even where it is clipped
  result.score = score;
  return result;
}

// Emulates up to `frameskip` frames, adds one frame to the stack, returns the reward.
double Atari::EmulateStep(const AtariPress& press, Rng& rng) {
  AtariEmulator& emulator = *engine_->emulator;
  std::int32_t reward = 0;
  for (std::int32_t frames_left = config_.frameskip; frames_left > 0; --frames_left) {
    reward += EmulateFrame(press, rng);
    game_over_ = emulator.GameOver();
    const std::int32_t lives = emulator.Lives();
    // some games count lives down to 0 at their end, which game_over_ reports
    life_lost_ = lives > 0 && lives < lives_;
    // the frame that ends the step early is not shown, as in the reference
    if (game_over_ || (on_life_loss_ != OnLifeLoss::kNothing && life_lost_)) break;
    // the maximum of the last two frames, because sprites flicker in turns
    if (frames_left == 2) engine_->observation.CaptureEarlier(emulator);
    if (frames_left == 1) engine_->observation.CaptureLast(emulator);
  }
  engine_->observation.Push(emulator);
  lives_ = emulator.Lives();
  return reward;
}

// Sticky actions (Machado et al. 2018): with some probability, the last action is repeated for one
// more frame.
std::int32_t Atari::EmulateFrame(const AtariPress& press, Rng& rng) {
  const double probability = config_.repeat_action_probability;
  if (probability == 0.0 || rng.Uniform() >= probability) pressed_ = press;
  CountUp(frame_number_);
  CountUp(episode_frame_number_);
  return engine_->emulator->Act(pressed_);
}

void Atari::Observe(Obs* obs) const { engine_->observation.Observe(obs); }

void Atari::WriteInfo(double* values) const {
  values[0] = lives_;
  values[1] = raw_reward_;
  values[2] = frame_number_;
  values[3] = episode_frame_number_;
  if (config_.ram_info) std::ranges::copy(engine_->emulator->Ram(), values + 4);
}

std::array<std::int32_t, 2> Atari::Render(std::vector<std::uint8_t>& rgb) const {
  if (!engine_->emulator) throw EngineError("there is no emulator to draw: the reset that was to load it failed");
  const AtariGame& game = *engine_->game;
  const std::uint8_t* const pixels = engine_->emulator->Screen();
  const std::array<std::int32_t, 2> size = {game.screen_height(), game.screen_width()};
  rgb.resize(3 * static_cast<std::size_t>(size[0]) * size[1]);
  // drawn in the game's own size and colours, whatever the observation is
  for (std::size_t i = 0; 3 * i < rgb.size(); ++i) {
    std::copy_n(game.palette().rgb[pixels[i]].data(), 3, rgb.data() + 3 * i);
  }
  return size;
}

void Atari::SaveState(std::vector<std::uint8_t>& out) const {
  if (!engine_->emulator) throw EngineError("there is no emulator to save: the reset that was to load it failed");
  StateWriter writer(out);
  writer.Put(pressed_.action);
  writer.Put(pressed_.strength);
  writer.Put(lives_);
  writer.Put(raw_reward_);
  writer.Put(frame_number_);
  writer.Put(episode_frame_number_);
  writer.Put(static_cast<std::uint8_t>(game_over_));
  writer.Put(static_cast<std::uint8_t>(life_lost_));
  std::vector<std::uint8_t> emulator;
  engine_->emulator->Save(emulator);
  writer.Put(static_cast<std::uint64_t>(emulator.size()));
  writer.PutBytes(emulator);
  engine_->observation.Save(writer);
}

void Atari::LoadState(std::span<const std::uint8_t> state) {
  StateReader reader(state);
  const auto pressed_action = reader.Get<std::int32_t>();
  const auto pressed_strength = reader.Get<float>();
  if (!(std::abs(pressed_strength) <= kMaxStrength)) {
    throw SpecError("turns a paddle by " + std::to_string(pressed_strength) +
                    ", expected a number up to " + std::to_string(kMaxStrength));
  }
  if (pressed_action < 0 || pressed_action >= kNumAleActions) {
    throw SpecError("has pressed action " + std::to_string(pressed_action) + ", expected 0 to " +
                    std::to_string(kNumAleActions - 1));
  }
  const auto lives = reader.Get<std::int32_t>();
  const auto raw_reward = reader.Get<double>();
  const auto frame_number = reader.Get<std::int32_t>();
  const auto episode_frame_number = reader.Get<std::int32_t>();
  const bool game_over = reader.Get<std::uint8_t>() != 0;
  const bool life_lost = reader.Get<std::uint8_t>() != 0;
  const auto emulator = reader.GetBytes(reader.Get<std::uint64_t>());
  // a state may be loaded before the first reset
  engine_->NeedEmulator();
  // may throw, before anything has changed
  const auto saved = engine_->emulator->Read(emulator);
  engine_->observation.Load(reader);
  engine_->emulator->Resume(*saved);
  pressed_ = {pressed_action, pressed_strength};
  lives_ = lives;
  raw_reward_ = raw_reward;
  frame_number_ = frame_number;
  episode_frame_number_ = episode_frame_number;
  game_over_ = game_over;
  life_lost_ = life_lost;
}

}  // namespace rollouts
