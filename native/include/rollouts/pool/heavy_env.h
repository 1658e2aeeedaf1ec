// SPDX-License-Identifier: Apache-2.0
// An abstract class for heavy environments, and a table of functions for each type of them: so the
// batch's code is compiled once, not for each type. A virtual call costs little next to an engine's
// step.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rollouts/core/engine_choice.h"
#include "rollouts/core/env.h"
#include "rollouts/core/model_overrides.h"
#include "rollouts/pool/model_columns.h"
#include "rollouts/support/errors.h"
#include "rollouts/support/options.h"

namespace rollouts {

// A heavy environment whose state can be saved; core/env.h has the contract.
template <typename Env>
concept Saveable = requires(const Env& env, Env& target, std::vector<std::uint8_t>& out) {
  env.SaveState(out);
  target.LoadState(out);
};

// A heavy environment that its engine draws; others are drawn in Python.
template <typename Env>
concept Drawn = requires(const Env& env, std::vector<std::uint8_t>& rgb) {
  { env.Render(rgb) } -> std::same_as<std::array<std::int32_t, 2>>;
};

// A heavy environment that shares something, such as a model, with others of equal options.
template <typename Env>
concept Sharing = requires(const typename Env::Config& config) { Env::Share(config); };

// A heavy environment that a thread steps in turns with others: a turn stops in the middle, so that
// the engine works for several environments at once.
template <typename Env>
concept TakesTurns = requires(const std::function<void(std::int32_t)>& turn) {
  Env::RunTurns(std::int32_t{}, turn);
};

// A heavy environment whose engine makes steps of several environments at once, before each of them
// ends its own step. EnvSpec::together tells whether it does so with the given options.
template <typename Env>
concept StepsAhead = requires(std::span<Env* const> envs,
                              std::span<const typename Env::Action* const> actions) {
  Env::StepAhead(envs, actions);
};

// A heavy environment of this kind whose engine also makes the steps that a reset consists of.
template <typename Env>
concept BeginsAhead = requires(std::span<Env* const> envs, std::span<const Rng> streams) {
  Env::BeginAhead(envs, streams);
};

// A heavy environment that one of several engines steps.
template <typename Env>
concept HasEngines = requires(const Env& env) {
  { env.engine() } -> std::same_as<EngineChoice>;
};

// A heavy environment that takes something over from the one it replaces, which had other options.
template <typename Env>
concept Following = requires(Env& env, const Env& before) { env.Follow(before); };

// A heavy environment whose model has fields that may differ from the file's values.
template <typename Env>
concept HasModel = requires(const Env& env, Env& target, const ModelOverrides& overrides) {
  env.CheckOverrides(overrides);
  target.SetModel(overrides);
  env.model_overrides();
};

// One environment. The functions are those of core/env.h; actions and observations are bytes of the
// environment's own types. A function that HeavyType marks as missing is not called.
class HeavyEnv {
 public:
  using Action = std::uint8_t;
  using Obs = std::uint8_t;

  virtual ~HeavyEnv() = default;
  virtual void Reset(Rng& rng, bool forced) = 0;
  virtual StepResult Step(const Action* action, Rng& rng) = 0;
  virtual void Observe(Obs* obs) const = 0;
  virtual void WriteInfo(double* values) const = 0;
  virtual void SaveState(std::vector<std::uint8_t>& out) const = 0;
  virtual void LoadState(std::span<const std::uint8_t> state) = 0;
  // Takes over what it can from `before`, which is of the same type.
  virtual void Follow(const HeavyEnv& before) = 0;
  virtual std::array<std::int32_t, 2> Render(std::vector<std::uint8_t>& rgb) const = 0;
  virtual void CheckOverrides(const ModelOverrides& overrides) const = 0;
  virtual void SetModel(ModelOverrides overrides) = 0;
  virtual const ModelOverrides& model_overrides() const = 0;
  virtual ModelArray ReadModel(const std::string& field, bool of_file) const = 0;
  virtual std::vector<std::string> ModelFields() const = 0;
  virtual EngineChoice engine() const = 0;
  // Tells if the last step was made by HeavyType::step_ahead.
  virtual bool stepped_ahead() const = 0;
};

// A Config of some environment type; only that type's functions read it.
using AnyConfig = std::shared_ptr<const void>;

// An environment type: its Configs and what it can do. A table of functions, one per type.
struct HeavyType {
  bool saveable = false;
  bool drawn = false;
  bool has_model = false;
  // Returns the options in row `row`, over those of `base`, or over the defaults where it is null.
  AnyConfig (*read_config)(const OptionColumns& given, std::int32_t row, const void* base);
  Options (*list_options)(const void* config);
  EnvSpec (*make_spec)(const void* config);
  std::shared_ptr<const void> (*share)(const void* config);  // null where nothing is shared
  std::unique_ptr<HeavyEnv> (*make)(const void* config);
  // Calls turn(0) to turn(count - 1); null where environments are stepped one by one.
  using RunTurns = void (*)(std::int32_t count, const std::function<void(std::int32_t)>& turn);
  RunTurns run_turns;
  // Makes the due steps of at most kMostAhead environments; the Step of each follows. Does not
  // throw. Null where environments are stepped one by one.
  static constexpr std::size_t kMostAhead = 64;
  using StepAhead = void (*)(std::span<HeavyEnv* const> envs,
                             std::span<const HeavyEnv::Action* const> actions);
  StepAhead step_ahead;
  // The same for due resets; the Reset of each follows, with an equal stream. Null where a reset
  // has no work that can be done for several at once.
  using BeginAhead = void (*)(std::span<HeavyEnv* const> envs, std::span<const Rng> streams);
  BeginAhead begin_ahead;
};

// The environment that HeavyEnv's virtual calls reach.
template <typename Env>
class HeavyEnvOf final : public HeavyEnv {
 public:
  explicit HeavyEnvOf(const typename Env::Config& config) : env_(config) {}

  void Reset(Rng& rng, bool forced) override { env_.Reset(rng, forced); }
  StepResult Step(const Action* action, Rng& rng) override {
    return env_.Step(reinterpret_cast<const typename Env::Action*>(action), rng);
  }
  void Observe(Obs* obs) const override {
    env_.Observe(reinterpret_cast<typename Env::Obs*>(obs));
  }
  void WriteInfo(double* values) const override { env_.WriteInfo(values); }
  void SaveState(std::vector<std::uint8_t>& out) const override {
    if constexpr (Saveable<Env>) env_.SaveState(out);
  }
  void LoadState(std::span<const std::uint8_t> state) override {
    if constexpr (Saveable<Env>) env_.LoadState(state);
  }
  void Follow([[maybe_unused]] const HeavyEnv& before) override {
    if constexpr (Following<Env>) env_.Follow(static_cast<const HeavyEnvOf&>(before).env_);
  }
  std::array<std::int32_t, 2> Render(std::vector<std::uint8_t>& rgb) const override {
    if constexpr (Drawn<Env>) return env_.Render(rgb);
    return {};
  }
  void CheckOverrides(const ModelOverrides& overrides) const override {
    if constexpr (HasModel<Env>) env_.CheckOverrides(overrides);
  }
  void SetModel(ModelOverrides overrides) override {
    if constexpr (HasModel<Env>) env_.SetModel(std::move(overrides));
  }
  const ModelOverrides& model_overrides() const override {
    static const ModelOverrides none;
    if constexpr (HasModel<Env>) return env_.model_overrides();
    return none;
  }
  ModelArray ReadModel(const std::string& field, bool of_file) const override {
    if constexpr (HasModel<Env>) return env_.ReadModel(field, of_file);
    return {};
  }
  std::vector<std::string> ModelFields() const override {
    if constexpr (HasModel<Env>) return env_.ModelFields();
    return {};
  }

  EngineChoice engine() const override {
    if constexpr (HasEngines<Env>) return env_.engine();
    return {};
  }
  bool stepped_ahead() const override {
    if constexpr (StepsAhead<Env>) return env_.stepped_ahead();
    return false;
  }

  static void StepAhead(std::span<HeavyEnv* const> envs, std::span<const Action* const> actions)
    requires StepsAhead<Env>
  {
    std::array<Env*, HeavyType::kMostAhead> own;
    std::array<const typename Env::Action*, HeavyType::kMostAhead> own_actions;
    for (std::size_t i = 0; i < envs.size(); ++i) {
      own[i] = &static_cast<HeavyEnvOf*>(envs[i])->env_;
      own_actions[i] = reinterpret_cast<const typename Env::Action*>(actions[i]);
    }
    Env::StepAhead(std::span<Env* const>(own.data(), envs.size()),
                   std::span<const typename Env::Action* const>(own_actions.data(), envs.size()));
  }
  static void BeginAhead(std::span<HeavyEnv* const> envs, std::span<const Rng> streams)
    requires BeginsAhead<Env>
  {
    std::array<Env*, HeavyType::kMostAhead> own;
    for (std::size_t i = 0; i < envs.size(); ++i) own[i] = &static_cast<HeavyEnvOf*>(envs[i])->env_;
    Env::BeginAhead(std::span<Env* const>(own.data(), envs.size()), streams);
  }

 private:
  Env env_;
};

template <typename Env>
const HeavyType& HeavyTypeOf() {
  using Config = typename Env::Config;
  static constexpr auto config_of = [](const void* config) -> const Config& {
    return *static_cast<const Config*>(config);
  };
  static constexpr HeavyType type{
      .saveable = Saveable<Env>,
      .drawn = Drawn<Env>,
      .has_model = HasModel<Env>,
      .read_config = [](const OptionColumns& given, std::int32_t row,
                        const void* base) -> AnyConfig {
        return std::make_shared<const Config>(
            ReadConfig<Env>(given, row, base ? config_of(base) : Config{}));
      },
      .list_options = [](const void* config) { return ListOptions<Env>(config_of(config)); },
      .make_spec = [](const void* config) { return Env::MakeSpec(config_of(config)); },
      .share = [](const void* config) -> std::shared_ptr<const void> {
        if constexpr (Sharing<Env>) return Env::Share(config_of(config));
        return nullptr;
      },
      .make = [](const void* config) -> std::unique_ptr<HeavyEnv> {
        return std::make_unique<HeavyEnvOf<Env>>(config_of(config));
      },
      .run_turns = []() -> HeavyType::RunTurns {
        if constexpr (TakesTurns<Env>) return &Env::RunTurns;
        return nullptr;
      }(),
      .step_ahead = []() -> HeavyType::StepAhead {
        if constexpr (StepsAhead<Env>) return &HeavyEnvOf<Env>::StepAhead;
        return nullptr;
      }(),
      .begin_ahead = []() -> HeavyType::BeginAhead {
        if constexpr (BeginsAhead<Env>) return &HeavyEnvOf<Env>::BeginAhead;
        return nullptr;
      }(),
  };
  return type;
}

}  // namespace rollouts
