// SPDX-License-Identifier: Apache-2.0
// Checks whether a grid from a saved state, which may come from anywhere, can be stepped and drawn:
// none of its numbers leads a lookup outside of its bounds.
#pragma once

#include "rollouts/envs/minigrid/grid.h"
#include "rollouts/envs/minigrid/words.h"

namespace rollouts::minigrid {

// Tells if a cell is one that grids are made of, and that observations and images can show.
ROLLOUTS_HD inline bool IsCell(Cell cell) {
  const std::uint32_t type = TypeOf(cell);
  const bool known = type == kNothing || type == kWallType || (type >= kDoor && type <= kLavaType);
  return known && ColorOf(cell) < kNumColors && StateOf(cell) <= kLocked &&
         (cell >> 20 & 7) <= kNumColors;
}

// True for a grid of this size. The level checks its own items.
inline ROLLOUTS_NOINLINE bool IsGrid(const Grid& grid, std::int32_t width, std::int32_t height) {
  if (grid.width != width || grid.height != height) return false;
  if (!grid.IsInner(grid.x, grid.y)) return false;
  if (!IsWithin(grid.dir, 0, 3) || !IsWithin(grid.num_items, 0, kMaxItems)) return false;
  if (!IsWithin(grid.max_steps, 1, 1 << 30) || !IsWithin(grid.steps, 0, grid.max_steps)) return false;
  if (!IsWithin(grid.num_words, 0, kMaxWords)) return false;
  for (const std::uint8_t word : grid.words) {
    if (word >= static_cast<std::uint8_t>(Word::kCount)) return false;
  }
  for (std::int32_t i = 0; i < width * height; ++i) {
    if (!IsCell(grid.cells[i])) return false;
  }
  if (!IsCell(grid.carrying)) return false;
  return IsEmpty(grid.carrying) || CanPickUp(grid.carrying);
}

}  // namespace rollouts::minigrid
