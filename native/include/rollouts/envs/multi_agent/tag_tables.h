// SPDX-License-Identifier: Apache-2.0
// Tables made from the options of TagContinuous: which agents are taggers, their starts, and the
// effects of their actions.
#pragma once

#include "rollouts/core/math.h"
#include "rollouts/envs/multi_agent/numpy_random.h"

namespace rollouts {

// Borrows the numbers.
template <typename Config>
struct TagTables {
  const float* id;            // ids by row, in WarpDrive's order of agents
  const float* start;         // x by id, then y, then heading
  const float* acceleration;  // one for each level
  const float* turn;
  const float* row;           // rows by id

  ROLLOUTS_HD TagTables(const Config& config, const float* tables) {
    const std::int32_t n = config.num_taggers + config.num_runners;
    id = tables;
    start = tables + n;
    acceleration = tables + 4 * n;
    turn = acceleration + config.num_acceleration_levels + 1;
    row = turn + config.num_turn_levels + 1;
  }

  static std::int32_t Size(const Config& config) {
    return 5 * (config.num_taggers + config.num_runners) + config.num_acceleration_levels +
           config.num_turn_levels + 2;
  }

  // Draws as WarpDrive does, in its order: which agents are taggers, then x, y and heading of all
  // ids.
  static void Fill(const Config& config, float* tables) {
    const std::int32_t n = config.num_taggers + config.num_runners;
    NumpyRandom random(static_cast<std::uint32_t>(config.start_seed));
    float* const id_of_row = tables;
    float* const start = tables + n;
    // the beginning of the permutation gives the ids of the taggers; `start` serves as memory for
    // it
    random.Permutation(n, start);
    for (std::int32_t id = 0; id < n; ++id) start[n + id] = 0;
    for (std::int32_t i = 0; i < config.num_taggers; ++i) {
      start[n + static_cast<std::int32_t>(start[i])] = 1;
    }
    std::int32_t tagger = 0, runner = config.num_taggers;
    for (std::int32_t id = 0; id < n; ++id) {
      id_of_row[start[n + id] == 1 ? tagger++ : runner++] = static_cast<float>(id);
    }
    const auto side = static_cast<float>(config.grid_length);
    for (std::int32_t axis = 0; axis < 2; ++axis) {
      for (std::int32_t id = 0; id < n; ++id) {
        start[axis * n + id] = static_cast<float>(side * random.Uniform());
      }
    }
    for (std::int32_t id = 0; id < n; ++id) {
      start[2 * n + id] = static_cast<float>(random.Below(4) * (kPi / 2));
    }
    float* const levels = tables + 4 * n;
    FillLevels(config.min_acceleration, config.max_acceleration, config.num_acceleration_levels,
               levels);
    FillLevels(config.min_turn, config.max_turn, config.num_turn_levels,
               levels + config.num_acceleration_levels + 1);
    float* const row_of_id = levels + config.num_acceleration_levels + config.num_turn_levels + 2;
    for (std::int32_t row = 0; row < n; ++row) {
      row_of_id[static_cast<std::int32_t>(id_of_row[row])] = static_cast<float>(row);
    }
  }

 private:
  // 0, then `count` numbers from low to high, as by NumPy 2's linspace for 32-bit numbers.
  static void FillLevels(double low, double high, std::int32_t count, float* levels) {
    const auto first = static_cast<float>(low), last = static_cast<float>(high);
    levels[0] = 0;
    const float step = count > 1 ? (last - first) / static_cast<float>(count - 1) : 0.0f;
    for (std::int32_t i = 0; i < count; ++i) levels[1 + i] = static_cast<float>(i) * step + first;
    if (count > 1) levels[count] = last;
  }
};

}  // namespace rollouts
