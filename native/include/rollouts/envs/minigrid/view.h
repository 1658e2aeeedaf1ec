// SPDX-License-Identifier: Apache-2.0
// The agent's view: a square of cells in front of it, turned so that the agent looks up, without
// the cells that walls and closed doors hide (MiniGridEnv.gen_obs, Grid.process_vis).
#pragma once

#include "rollouts/envs/minigrid/grid.h"

namespace rollouts::minigrid {

inline constexpr std::int32_t kMaxView = 15;  // cells of a side

// The cells in the view, [column * side + row], and which of them are visible: a bit for each
// column.
struct View {
  Cell cells[kMaxView * kMaxView];
  std::uint32_t seen[kMaxView];
};

// Takes the cells in front of the agent; outside of the grid are walls.
inline ROLLOUTS_NOINLINE void TakeCells(const Grid& grid, const std::int32_t side, View& view) {
  const std::int32_t dx = StepX(grid.dir), dy = StepY(grid.dir);
  // the front left cell
  const std::int32_t x = grid.x + dx * (side - 1) + dy * (side / 2);
  const std::int32_t y = grid.y + dy * (side - 1) - dx * (side / 2);
  // the next column is at (-dy, dx), the next row at (-dx, -dy)
  const std::int32_t right = -dy + dx * grid.width;
  const std::int32_t back = -dx - dy * grid.width;
  const std::int32_t first = grid.Index(x, y);
  for (std::int32_t column = 0; column < side; ++column) {
    const std::int32_t across = dx ? y + dx * column : x - dy * column;
    const bool inside = across >= 0 && across < (dx ? grid.height : grid.width);
    for (std::int32_t row = 0; row < side; ++row) {
      const std::int32_t along = dx ? x - dx * row : y - dy * row;
      const bool in_grid = inside && along >= 0 && along < (dx ? grid.width : grid.height);
      const std::int32_t at = first + column * right + row * back;
      view.cells[column * side + row] = (in_grid ? grid.cells[at] : kWall) & kShown;
    }
  }
}

// Spreads visibility within a row, first to the right and then to the left, and to the next row in
// front.
ROLLOUTS_HD inline std::uint32_t SpreadRow(const std::int32_t side, std::uint32_t open,
                                           std::uint32_t& seen) {
  const std::uint32_t all = (1u << side) - 1;
  const std::uint32_t not_last = open & (all >> 1), not_first = open & ~1u;
  for (std::int32_t i = 1; i < side; ++i) seen |= (seen & not_last) << 1;
  const std::uint32_t to_right = seen & not_last;
  for (std::int32_t i = 1; i < side; ++i) seen |= (seen & not_first) >> 1;
  const std::uint32_t to_left = seen & not_first;
  return to_right | to_right << 1 | to_left | to_left >> 1;
}

// Finds the visible cells, from the agent's row, which is the last one, to the first.
inline ROLLOUTS_NOINLINE void FindSeen(const std::int32_t side, View& view) {
  std::uint32_t seen = 1u << (side / 2);
  for (std::int32_t row = side - 1; row >= 0; --row) {
    std::uint32_t open = 0;
    for (std::int32_t column = 0; column < side; ++column) {
      open |= static_cast<std::uint32_t>(!IsOpaque(view.cells[column * side + row])) << column;
    }
    const std::uint32_t next = SpreadRow(side, open, seen);
    view.seen[row] = seen;
    seen = next;
  }
}

// Computes the agent's view. `side`: the number of cells of a side; odd.
inline ROLLOUTS_NOINLINE void Look(const Grid& grid, const std::int32_t side, bool see_through,
                                   View& view) {
  TakeCells(grid, side, view);
  if (see_through) {
    for (std::int32_t row = 0; row < side; ++row) view.seen[row] = ~0u;
  } else {
    FindSeen(side, view);
    for (std::int32_t column = 0; column < side; ++column) {
      for (std::int32_t row = 0; row < side; ++row) {
        view.cells[column * side + row] &= 0u - (view.seen[row] >> column & 1);
      }
    }
  }
  // the agent's own cell shows what it carries
  view.cells[side / 2 * side + side - 1] = grid.carrying & kShown;
}

}  // namespace rollouts::minigrid
