// SPDX-License-Identifier: Apache-2.0
// Catching a falling ball (Mnih et al., "Recurrent models of visual attention", 2014), with
// the rules and the board of bsuite's `catch` (bsuite/environments/catch.py).
#pragma once

#include "rollouts/core/env.h"

namespace rollouts {

struct Catch {
  struct Config {};
  struct State {
    std::int32_t ball_row, ball_col, paddle_col;
  };
  using Action = std::int32_t;  // 0 left, 1 stay, 2 right
  using Obs = float;            // 1 at the ball and at the paddle

  static constexpr std::int32_t kRows = 10;  // bsuite's default board
  static constexpr std::int32_t kCols = 5;

  static constexpr EnvSpec kSpec = {
      .observation = {.dtype = DType::kFloat32,
                      .ndim = 2,
                      .shape = {kRows, kCols},
                      .low = {0},
                      .high = {1}},
      .action = {.dtype = DType::kInt64, .n = 3},
      .step_cost_ns = 13};

  template <typename Visitor>
  static void VisitConfig(Config&, Visitor&) {}

  ROLLOUTS_HD static void Reset(const Config&, State& state, Rng& rng) {
    state = State{0, static_cast<std::int32_t>(rng.Below(kCols)), kCols / 2};
  }

  ROLLOUTS_HD static StepResult Step(const Config&, State& state, const Action* action, Rng&) {
    state.paddle_col = Clip(state.paddle_col + *action - 1, 0, kCols - 1);
    ++state.ball_row;

    // the paddle is on the last row
    const bool terminated = state.ball_row == kRows - 1;
    const double caught = state.ball_col == state.paddle_col ? 1.0 : -1.0;
    return StepResult::Of(terminated ? caught : 0.0, terminated);
  }

  ROLLOUTS_HD static const char* CheckState(const Config&, const State& state) {
    return IsWithin(state.ball_row, 0, kRows - 1) && IsWithin(state.ball_col, 0, kCols - 1) &&
                   IsWithin(state.paddle_col, 0, kCols - 1)
               ? nullptr
               : kNoSuchState;
  }

  ROLLOUTS_HD static void Observe(const Config&, const State& state, Obs* obs) {
    const std::int32_t ball = state.ball_row * kCols + state.ball_col;
    const std::int32_t paddle = (kRows - 1) * kCols + state.paddle_col;
    for (std::int32_t i = 0; i < kRows * kCols; ++i) {
      obs[i] = i == ball || i == paddle ? 1.0f : 0.0f;
    }
  }
};

}  // namespace rollouts
