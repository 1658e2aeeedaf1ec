// A vault whose code is guessed: each step tries all dials, and is told which were right.
#pragma once

#include "parts/dials.h"
#include "rollouts/core/env.h"

namespace games {

struct Vault {
  struct Config {
    double fog = 0.1;            // probability that a dial's answer is a lie
    std::int32_t most_tries = 20;  // tries before the alarm rings
    bool shown = false;          // the code is in the observation
  };
  struct State {
    std::int32_t code[kDials];
    std::int32_t right[kDials];
    std::int32_t tries;
    double patience;
  };
  using Action = std::int32_t;
  using Obs = float;

  static constexpr rollouts::EnvSpec kSpec = {
      .observation = {.dtype = rollouts::DType::kFloat32,
                      .ndim = 1,
                      .shape = {2 * kDials + 1},
                      .low = {-1},
                      .high = {5}},
      .action = {.dtype = rollouts::DType::kInt32,
                 .ndim = 1,
                 .shape = {kDials},
                 .multi_discrete = true,
                 .elementwise = true,
                 .high = {kDigits[0] - 1, kDigits[1] - 1, kDigits[2] - 1}},
      .step_cost_ns = 30,
      .num_infos = 1,
      .infos = {{.name = "tries", .dtype = rollouts::DType::kInt32}},
      .reset_infos = true};

  template <typename V>
  static void VisitConfig(Config& config, V& visit) {
    visit("fog", config.fog);
    visit("most_tries", config.most_tries);
    visit("shown", config.shown);
  }
  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Probability("fog", config.fog);
    check.Between("most_tries", config.most_tries, 1, 1000);
  }

  ROLLOUTS_HD static void Reset(const Config& config, State& state, rollouts::Rng& rng) {
    for (std::int32_t d = 0; d < kDials; ++d) {
      state.code[d] = static_cast<std::int32_t>(rng.Below(kDigits[d]));
      state.right[d] = 0;
    }
    state.tries = 0;
    state.patience = config.most_tries;
  }
  ROLLOUTS_HD static rollouts::StepResult Step(const Config& config, State& state,
                                               const Action* action, rollouts::Rng& rng) {
    std::int32_t right = 0;
    for (std::int32_t d = 0; d < kDials; ++d) {
      const bool same = action[d] == state.code[d];
      right += same;
      state.right[d] = same != (rng.Uniform() < config.fog);
    }
    ++state.tries;
    state.patience -= 1 + 0.001 * rollouts::Sin(static_cast<rollouts::Real>(state.tries));
    const bool open = right == kDials;
    return rollouts::StepResult::Of(open ? 10.0 : -0.1 * (kDials - right),
                                    open || state.patience <= 0);
  }
  ROLLOUTS_HD static void Observe(const Config& config, const State& state, Obs* obs) {
    for (std::int32_t d = 0; d < kDials; ++d) {
      obs[d] = static_cast<float>(state.right[d]);
      obs[kDials + d] = config.shown ? static_cast<float>(state.code[d]) : -1.0f;
    }
    obs[2 * kDials] = static_cast<float>(state.patience / config.most_tries);
  }
  ROLLOUTS_HD static void WriteInfo(const Config&, const State& state, double* values) {
    values[0] = state.tries;
  }
};

}  // namespace games
