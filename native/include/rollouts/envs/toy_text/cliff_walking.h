// SPDX-License-Identifier: Apache-2.0
// Walking along a cliff (Sutton and Barto 2018, example 6.6), as Gymnasium's CliffWalking-v1
// and CliffWalkingSlippery-v1 (gymnasium/envs/toy_text/cliffwalking.py).
#pragma once

#include "rollouts/core/env.h"

namespace rollouts {

template <bool kSlippery>
struct CliffWalkingOf {
  struct Config {
    bool is_slippery = kSlippery;  // moves as told, or a quarter turn left or right, a third each
  };
  struct State {
    std::int32_t row;
    // the column, plus kDrawn where the last step's direction was drawn; this has no field of its
    // own, because a larger state costs more than the step
    std::int32_t col;
  };
  using Action = std::int32_t;  // 0 up, 1 right, 2 down, 3 left
  using Obs = std::int64_t;     // row * 12 + col

  // the last row is: start, cliff ..., goal
  static constexpr std::int32_t kRows = 4;
  static constexpr std::int32_t kCols = 12;
  static constexpr std::int32_t kDrawn = 256;

  static constexpr bool kVectorized = true;
  static constexpr EnvSpec kSpec = {
      .observation = {.dtype = DType::kInt64, .n = kRows * kCols},
      .action = {.dtype = DType::kInt64, .n = 4},
      .step_cost_ns = kSlippery ? 16 : 5,
      .num_infos = 1,
      .infos = {{.name = "prob"}},
      .reset_infos = true};

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("is_slippery", config.is_slippery);
  }

  ROLLOUTS_HD static bool StepDraws(const Config& config) { return config.is_slippery; }

  ROLLOUTS_HD static void Reset(const Config&, State& state, Rng&) {
    state = State{kRows - 1, 0};
  }

  template <typename AnyRng>
  ROLLOUTS_HD static StepResult Step(const Config& config, State& state, const Action* action,
                                     AnyRng& rng) {
    std::int32_t direction = *action;
    if (config.is_slippery) {
      direction = (direction + 3 + static_cast<std::int32_t>(rng.Below(3))) & 3;
    }
    const std::int32_t down = (direction == 2) - (direction == 0);
    const std::int32_t right = (direction == 1) - (direction == 3);
    const std::int32_t row = Clip(state.row + down, 0, kRows - 1);
    const std::int32_t col = Clip(Col(state) + right, 0, kCols - 1);

    // an agent that falls down the cliff is back at the start
    const bool bottom = row == kRows - 1;
    const bool fallen = bottom & (col > 0) & (col < kCols - 1);
    state.row = row;
    state.col = (fallen ? 0 : col) + (config.is_slippery ? kDrawn : 0);
    return StepResult::Of(fallen ? -100.0 : -1.0, bottom & (col == kCols - 1));
  }

  ROLLOUTS_HD static void Observe(const Config&, const State& state, Obs* obs) {
    *obs = state.row * kCols + Col(state);
  }

  ROLLOUTS_HD static const char* CheckState(const Config&, const State& state) {
    return IsWithin(state.row, 0, kRows - 1) && IsWithin(Col(state), 0, kCols - 1) &&
                   IsWithin(state.col, 0, kDrawn + kCols - 1)
               ? nullptr
               : kNoSuchState;
  }

  // prob: the probability of the direction taken.
  ROLLOUTS_HD static void WriteInfo(const Config&, const State& state, double* values) {
    values[0] = state.col >= kDrawn ? 1.0 / 3.0 : 1.0;
  }

 private:
  ROLLOUTS_HD static std::int32_t Col(const State& state) { return state.col & (kDrawn - 1); }
};

using CliffWalking = CliffWalkingOf<false>;
using CliffWalkingSlippery = CliffWalkingOf<true>;

}  // namespace rollouts
