// SPDX-License-Identifier: Apache-2.0
// Crossing a frozen lake without falling into a hole, as Gymnasium's FrozenLake-v1 and
// FrozenLake8x8-v1 (gymnasium/envs/toy_text/frozen_lake.py).
#pragma once

#include "rollouts/core/env.h"

namespace rollouts {

// Start, Frozen, Hole, Goal, row after row.
struct FrozenLakeMap4x4 {
  static constexpr std::int32_t kSize = 4;
  static constexpr char kTiles[] = "SFFF"
                                   "FHFH"
                                   "FFFH"
                                   "HFFG";
};
struct FrozenLakeMap8x8 {
  static constexpr std::int32_t kSize = 8;
  static constexpr char kTiles[] = "SFFFFFFF"
                                   "FFFFFFFF"
                                   "FFFHFFFF"
                                   "FFFFFHFF"
                                   "FFFHFFFF"
                                   "FHHFFFHF"
                                   "FHFFHFHF"
                                   "FFFHFFFG";
};

// One bit for each cell that has the letter.
ROLLOUTS_HD constexpr std::uint64_t FrozenLakeCells(const char* tiles, char letter) {
  std::uint64_t cells = 0;
  for (std::int32_t i = 0; tiles[i] != 0; ++i) {
    cells |= static_cast<std::uint64_t>(tiles[i] == letter) << i;
  }
  return cells;
}

template <typename Map>
struct FrozenLakeOn {
  struct Config {
    bool is_slippery = true;  // also moves to either side of where the action says
    double success_rate = 1.0 / 3.0;  // probability of going where the action says, if slippery
    // Gymnasium's reward_schedule=(goal, hole, frozen)
    double reward_goal = 1;  // first of Gymnasium's reward_schedule: at the goal
    double reward_hole = 0;  // second of reward_schedule: in a hole
    double reward_frozen = 0;  // third of reward_schedule: anywhere else
  };
  struct State {
    std::int32_t row;
    // the column, plus kAsTold or kSlipped where the last step's direction was drawn; this has no
    // field of its own, because a larger state costs more than the step
    std::int32_t col;
  };
  using Action = std::int32_t;  // 0 left, 1 down, 2 right, 3 up
  using Obs = std::int64_t;     // row * size + col

  static constexpr std::int32_t kSize = Map::kSize;
  static constexpr std::int32_t kAsTold = 256;
  static constexpr std::int32_t kSlipped = 512;
  static constexpr std::uint64_t kHoles = FrozenLakeCells(Map::kTiles, 'H');
  static constexpr std::uint64_t kGoals = FrozenLakeCells(Map::kTiles, 'G');

  static constexpr bool kVectorized = true;
  static constexpr EnvSpec kSpec = {
      .observation = {.dtype = DType::kInt64, .n = kSize * kSize},
      .action = {.dtype = DType::kInt64, .n = 4},
      .step_cost_ns = 15,
      .num_infos = 1,
      .infos = {{.name = "prob"}},
      .reset_infos = true};

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("is_slippery", config.is_slippery);
    visit("success_rate", config.success_rate);
    visit("reward_goal", config.reward_goal);
    visit("reward_hole", config.reward_hole);
    visit("reward_frozen", config.reward_frozen);
  }

  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Probability("success_rate", config.success_rate);
    check.Finite("reward_goal", config.reward_goal);
    check.Finite("reward_hole", config.reward_hole);
    check.Finite("reward_frozen", config.reward_frozen);
  }

  ROLLOUTS_HD static bool StepDraws(const Config& config) { return config.is_slippery; }

  ROLLOUTS_HD static void Reset(const Config&, State& state, Rng&) { state = State{0, 0}; }

  template <typename AnyRng>
  ROLLOUTS_HD static StepResult Step(const Config& config, State& state, const Action* action,
                                     AnyRng& rng) {
    // slipping turns the action by 90 degrees to one side or the other
    std::int32_t direction = *action;
    std::int32_t chance = 0;
    if (config.is_slippery) {
      const double u = rng.Uniform();
      const double fail_rate = FailRate(config);
      const std::int32_t turn = 3 + (u >= fail_rate) + (u >= fail_rate + config.success_rate);
      direction = (direction + turn) & 3;
      chance = turn == 4 ? kAsTold : kSlipped;
    }

    // an agent in a hole or at the goal cannot move
    const std::int32_t free = 1 - Has(kHoles | kGoals, state);
    const std::int32_t down = (direction == 1) - (direction == 3);
    const std::int32_t right = (direction == 2) - (direction == 0);
    state.row = Clip(state.row + free * down, 0, kSize - 1);
    state.col = Clip(Col(state) + free * right, 0, kSize - 1) + free * chance;

    const bool goal = Has(kGoals, state);
    const bool hole = Has(kHoles, state);
    const double reward =
        goal ? config.reward_goal : (hole ? config.reward_hole : config.reward_frozen);
    return StepResult::Of(free ? reward : 0.0, goal | hole);
  }

  ROLLOUTS_HD static void Observe(const Config&, const State& state, Obs* obs) {
    *obs = state.row * kSize + Col(state);
  }

  ROLLOUTS_HD static const char* CheckState(const Config&, const State& state) {
    return IsWithin(state.row, 0, kSize - 1) && IsWithin(Col(state), 0, kSize - 1) &&
                   IsWithin(state.col, 0, kSlipped + kSize - 1)
               ? nullptr
               : kNoSuchState;
  }

  // prob: the probability of the direction taken.
  ROLLOUTS_HD static void WriteInfo(const Config& config, const State& state, double* values) {
    const double told = state.col < kAsTold ? 1.0 : config.success_rate;
    values[0] = state.col < kSlipped ? told : FailRate(config);
  }

 private:
  ROLLOUTS_HD static std::int32_t Col(const State& state) { return state.col & (kAsTold - 1); }
  // The probability of slipping to one side.
  ROLLOUTS_HD static double FailRate(const Config& config) {
    return (1.0 - config.success_rate) / 2.0;
  }

  // Tells if the state's cell is one of `cells`. Shifts of 64 bits and tests of one bit would not
  // vectorise, so the bit of the cell becomes the sign bit of a 32-bit half.
  ROLLOUTS_HD static bool Has(std::uint64_t cells, const State& state) {
    const std::int32_t cell = state.row * kSize + Col(state);
    const auto low = static_cast<std::uint32_t>(cells);
    const auto high = static_cast<std::uint32_t>(cells >> 32);
    return static_cast<std::int32_t>((cell < 32 ? low : high) << (31 - (cell & 31))) < 0;
  }
};

using FrozenLake = FrozenLakeOn<FrozenLakeMap4x4>;
using FrozenLake8x8 = FrozenLakeOn<FrozenLakeMap8x8>;

}  // namespace rollouts
