// SPDX-License-Identifier: Apache-2.0
// Fetching a passenger and taking them to their hotel (Dietterich, "Hierarchical
// reinforcement learning with the MAXQ value function decomposition", JAIR 2000), as
// Gymnasium's Taxi-v4 (gymnasium/envs/toy_text/taxi.py). Taxi-v3 has the same rules except for
// is_rainy: before Gymnasium 1.3 the taxi could then slide through walls, which it never does here.
#pragma once

#include "rollouts/core/env.h"

namespace rollouts {

struct Taxi {
  struct Config {
    bool is_rainy = false;           // the taxi may slide to either side of its direction
    bool fickle_passenger = false;   // the passenger may change the destination, once
    double rainy_probability = 0.8;  // probability of going as told in the rain
    double fickle_probability = 0.3;  // probability that the passenger is fickle
  };
  struct State {
    std::int32_t row, col;
    std::int32_t passenger;    // waits at stop 0 to 3, or 4: in the taxi
    std::int32_t destination;  // stop 0 to 3
    std::int32_t fickle;       // 1: will change the destination on the first move
    std::int32_t chance;       // in the last step: 0 no draw, 1 went as told, 2 slid
  };
  using Action = std::int32_t;  // 0 south, 1 north, 2 east, 3 west, 4 pick up, 5 drop off
  using Obs = std::int64_t;     // ((row * 5 + col) * 5 + passenger) * 4 + destination

  static constexpr std::int32_t kSize = 5;  // rows and columns
  static constexpr std::int32_t kInTaxi = 4;
  static constexpr std::int32_t kNowhere = 5;

  static constexpr EnvSpec kSpec = {
      .observation = {.dtype = DType::kInt64, .n = 500},
      .action = {.dtype = DType::kInt64, .n = 6},
      .step_cost_ns = 15,
      .num_infos = 2,
      .infos = {{.name = "prob"}, {.name = "action_mask", .dtype = DType::kInt8, .length = 6}},
      .reset_infos = true};

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("is_rainy", config.is_rainy);
    visit("fickle_passenger", config.fickle_passenger);
    visit("rainy_probability", config.rainy_probability);
    visit("fickle_probability", config.fickle_probability);
  }

  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Probability("rainy_probability", config.rainy_probability);
    check.Probability("fickle_probability", config.fickle_probability);
  }

  ROLLOUTS_HD static void Reset(const Config& config, State& state, Rng& rng) {
    // 25 cells, 4 stops of the passenger, 3 other stops as the destination
    const auto start = static_cast<std::int32_t>(rng.Below(300));
    state.row = start / 60;
    state.col = start / 12 % 5;
    state.passenger = start / 3 % 4;
    state.destination = OtherStop(state.passenger, start % 3);
    state.chance = 0;
    state.fickle = config.fickle_passenger && rng.Uniform() < config.fickle_probability;
  }

  ROLLOUTS_HD static StepResult Step(const Config& config, State& state, const Action* action,
                                     Rng& rng) {
    state.chance = 0;
    Drive(config, state, *action, rng);

    // the passenger gets on at their stop, may get off at any stop, and pays at the destination
    const std::int32_t stop = StopAt(state.row * kSize + state.col);
    const bool riding = state.passenger == kInTaxi;
    const bool boards = *action == 4 && stop == state.passenger;
    const bool leaves = *action == 5 && riding && stop != kNowhere;
    const bool arrives = leaves && stop == state.destination;
    const bool illegal = *action >= 4 && !boards && !leaves;
    state.passenger = boards ? kInTaxi : (leaves ? stop : state.passenger);
    return StepResult::Of(arrives ? 20.0 : (illegal ? -10.0 : -1.0), arrives);
  }

  ROLLOUTS_HD static void Observe(const Config&, const State& state, Obs* obs) {
    *obs = ((state.row * 5 + state.col) * 5 + state.passenger) * 4 + state.destination;
  }

  ROLLOUTS_HD static const char* CheckState(const Config&, const State& state) {
    return IsWithin(state.row, 0, kSize - 1) && IsWithin(state.col, 0, kSize - 1) &&
                   IsWithin(state.passenger, 0, kInTaxi) && IsWithin(state.destination, 0, 3) &&
                   IsWithin(state.fickle, 0, 1) && IsWithin(state.chance, 0, 2)
               ? nullptr
               : kNoSuchState;
  }

  // prob: the probability of the direction taken in the rain. action_mask: 1 for actions that would
  // change the state.
  ROLLOUTS_HD static void WriteInfo(const Config& config, const State& state, double* values) {
    values[0] = state.chance == 0   ? 1.0
                : state.chance == 1 ? config.rainy_probability
                                    : LateralProbability(config);
    double* const mask = values + 1;
    for (std::int32_t direction = 0; direction < 4; ++direction) {
      mask[direction] = IsOpen(state, direction);
    }
    const std::int32_t stop = StopAt(state.row * kSize + state.col);
    mask[4] = stop == state.passenger;
    mask[5] = state.passenger == kInTaxi && stop != kNowhere;
  }

 private:
  // The probability of sliding to one side in the rain.
  ROLLOUTS_HD static double LateralProbability(const Config& config) {
    return (1.0 - config.rainy_probability) / 2.0;
  }

  // Moves the taxi; picking up and dropping off do not move it.
  ROLLOUTS_HD static void Drive(const Config& config, State& state, std::int32_t direction,
                                Rng& rng) {
    if (config.is_rainy && direction < 4) {
      // directions are south, north, east, west; the direction to the right is left ^ 1
      const std::int32_t left = direction < 2 ? direction + 2 : 3 - direction;
      const double u = rng.Uniform();
      const double lateral = LateralProbability(config);
      state.chance = u < config.rainy_probability ? 1 : 2;
      const bool slides = u >= config.rainy_probability && IsOpen(state, direction);
      const bool to_left = u < config.rainy_probability + lateral;
      direction = slides ? (to_left ? left : left ^ 1) : direction;
    }
    const std::int32_t open = IsOpen(state, direction);
    state.row += open * ((direction == 0) - (direction == 1));
    state.col += open * ((direction == 2) - (direction == 3));

    // a fickle passenger changes the destination after the first cell
    if (state.fickle && open && state.passenger == kInTaxi) {
      state.fickle = 0;
      state.destination = OtherStop(state.destination, static_cast<std::int32_t>(rng.Below(3)));
    }
  }

  // Tells if the taxi can leave its cell in a direction.
  ROLLOUTS_HD static bool IsOpen(const State& state, std::int32_t direction) {
    // bit `cell`: no wall between that cell and the next one east; five bits a row, last row first
    constexpr std::uint32_t kOpenEast = 0b01010'01010'01111'01101'01101;
    const std::int32_t cell = state.row * kSize + state.col;
    return (direction == 0 && state.row < kSize - 1) || (direction == 1 && state.row > 0) ||
           (direction == 2 && ((kOpenEast >> cell) & 1)) ||
           (direction == 3 && ((kOpenEast << 1 >> cell) & 1));
  }

  // The stop at a cell: R (0, 0), G (0, 4), Y (4, 0), B (4, 3).
  ROLLOUTS_HD static std::int32_t StopAt(std::int32_t cell) {
    return cell == 0 ? 0 : (cell == 4 ? 1 : (cell == 20 ? 2 : (cell == 23 ? 3 : kNowhere)));
  }

  // Number `index` of the three stops that are not `stop`.
  ROLLOUTS_HD static std::int32_t OtherStop(std::int32_t stop, std::int32_t index) {
    return index + (index >= stop);
  }
};

}  // namespace rollouts
