// MyEnv: walk along a line to a lamp that stands somewhere else in each episode. Replace its parts
// by those of your own game, one after the other; `rollouts check-env` tests the result.
//
// The whole contract is in rollouts/core/env.h; rollouts/envs/ has some fifty environments to read.
// The text must also compile for a GPU: use no standard library and allocate no memory. You may use
// rollouts/core/: Rng draws random numbers, math.h has Sin, Cos, Sqrt, Exp, Clip and others.
#pragma once

#include "rollouts/core/env.h"

struct MyEnv {
  // Options of rollouts.make_vec. The comment beside an option is its help text.
  struct Config {
    std::int32_t length = 10;  // fields on the line
    double slip = 0.1;         // probability that a step has no effect
    double step_cost = 0.01;   // taken for each step
  };

  // All data that the future depends on, as plain data. The pool counts steps and returns, and
  // handles time limits and resets: they do not belong here.
  struct State {
    std::int32_t position;
    std::int32_t lamp;
  };

  using Action = std::int32_t;  // 0 left, 1 stay, 2 right
  using Obs = float;            // element type of the observation

  // Spaces. Discrete: .n values. Box: .ndim, .shape, .low and .high. MultiDiscrete: as a Box of int32
  // with .multi_discrete = true, .elementwise = true and .high = {largest value of each element}.
  static constexpr rollouts::EnvSpec kSpec = {
      .observation = {.dtype = rollouts::DType::kFloat32,
                      .ndim = 1,
                      .shape = {2},
                      .low = {0},
                      .high = {1}},
      .action = {.dtype = rollouts::DType::kInt64, .n = 3},
      .step_cost_ns = 10};  // estimated time of a step, by which the pool sizes its work

  // The names of the options.
  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("length", config.length);
    visit("slip", config.slip);
    visit("step_cost", config.step_cost);
  }

  // Checks of options: Finite, Positive, Probability or Between.
  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Between("length", config.length, 2, 1000);
    check.Probability("slip", config.slip);
    check.Finite("step_cost", config.step_cost);
  }

  // Begins an episode. All of the state must be written.
  ROLLOUTS_HD static void Reset(const Config& config, State& state, rollouts::Rng& rng) {
    state.position = 0;
    state.lamp = 1 + static_cast<std::int32_t>(rng.Below(config.length - 1));
  }

  // One step: the reward, and whether the episode ends by the rules of the game. `action` is one
  // number, or the elements of a Box or MultiDiscrete. Random numbers come from `rng` alone.
  ROLLOUTS_HD static rollouts::StepResult Step(const Config& config, State& state,
                                               const Action* action, rollouts::Rng& rng) {
    const bool slips = rng.Uniform() < config.slip;
    const std::int32_t move = slips ? 0 : *action - 1;
    state.position = rollouts::Clip(state.position + move, 0, config.length - 1);
    const bool found = state.position == state.lamp;
    return rollouts::StepResult::Of((found ? 1.0 : 0.0) - config.step_cost, found);
  }

  // Writes every element of the observation; changes nothing.
  ROLLOUTS_HD static void Observe(const Config& config, const State& state, Obs* obs) {
    const auto last = static_cast<float>(config.length - 1);
    obs[0] = static_cast<float>(state.position) / last;
    obs[1] = static_cast<float>(state.lamp) / last;
  }
};
