// SPDX-License-Identifier: Apache-2.0
// A cell's pixels, for every content (minigrid/core/grid.py, Grid.render_tile).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rollouts/envs/minigrid/cells.h"

namespace rollouts::minigrid {

// All tiles of one size. Immutable once they are drawn.
class Tiles {
 public:
  // The tiles of `size` pixels a side, at most kMaxTile. The first call draws them while others
  // wait; they are kept until the process ends: 77 KB where a side has 8 pixels.
  static const Tiles& Of(std::int32_t size);

  explicit Tiles(std::int32_t size);

  // Rows of 3 * size bytes, one after the other. `facing`: the direction of the agent in the cell;
  // -1: there is no agent.
  const std::uint8_t* At(Cell cell, std::int32_t facing, bool lit) const {
    return pixels_.data() + Number(number_[Shown(cell)], facing, lit) * bytes_;
  }

 private:
  static constexpr std::size_t kShownBits = 9;
  static constexpr std::size_t Shown(Cell cell) {
    return TypeOf(cell) | ColorOf(cell) << 4 | StateOf(cell) << 7;
  }
  static constexpr std::size_t Number(std::size_t cell, std::int32_t facing, bool lit) {
    return (cell * 5 + static_cast<std::size_t>(facing + 1)) * 2 + (lit ? 1 : 0);
  }

  const std::size_t bytes_;  // a tile's
  // Values that are not a cell of the grid, such as an unseen one, look like an empty cell: number
  // 0.
  std::uint8_t number_[1 << kShownBits] = {};
  std::vector<std::uint8_t> pixels_;
};

}  // namespace rollouts::minigrid
