// SPDX-License-Identifier: Apache-2.0
// A chain whose far end pays (Strens, "A Bayesian framework for reinforcement learning",
// ICML 2000), with the rules of classic Gym's NChain-v0 (gym/envs/toy_text/nchain.py).
#pragma once

#include "rollouts/core/env.h"

namespace rollouts {

struct NChain {
  struct Config {
    double slip = 0.2;  // probability that the other action is taken
    double small = 2;   // reward of going back to the start
    double large = 10;  // reward of going forward at the end
  };
  struct State {
    std::int32_t position;
  };
  using Action = std::int32_t;  // 0 forward, 1 back to the start
  using Obs = std::int64_t;

  static constexpr std::int32_t kLength = 5;  // Gym's default n

  static constexpr bool kVectorized = true;
  static constexpr EnvSpec kSpec = {
      .observation = {.dtype = DType::kInt64, .n = kLength},
      .action = {.dtype = DType::kInt64, .n = 2},
      .step_cost_ns = 12};

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("slip", config.slip);
    visit("small", config.small);
    visit("large", config.large);
  }

  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Probability("slip", config.slip);
    check.Finite("small", config.small);
    check.Finite("large", config.large);
  }

  ROLLOUTS_HD static bool StepDraws(const Config&) { return true; }

  ROLLOUTS_HD static void Reset(const Config&, State& state, Rng&) { state.position = 0; }

  template <typename AnyRng>
  ROLLOUTS_HD static StepResult Step(const Config& config, State& state, const Action* action,
                                     AnyRng& rng) {
    const bool slips = rng.Uniform() < config.slip;
    const bool back = (*action == 1) != slips;
    const bool at_end = state.position == kLength - 1;
    const double reward = back ? config.small : (at_end ? config.large : 0.0);
    state.position = back ? 0 : state.position + !at_end;
    return StepResult::Of(reward, false);
  }

  ROLLOUTS_HD static void Observe(const Config&, const State& state, Obs* obs) {
    *obs = state.position;
  }

  ROLLOUTS_HD static const char* CheckState(const Config&, const State& state) {
    return IsWithin(state.position, 0, kLength - 1) ? nullptr : kNoSuchState;
  }
};

}  // namespace rollouts
