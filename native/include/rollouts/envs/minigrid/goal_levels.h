// SPDX-License-Identifier: Apache-2.0
// Levels that end at a goal: minigrid/envs/empty.py, doorkey.py, fourrooms.py,
// crossing.py, lavagap.py, distshift.py, lockedroom.py, dynamicobstacles.py.
//
// Each function draws a grid, and returns false where no cell was free: then another is drawn.
#pragma once

#include "rollouts/envs/minigrid/config.h"
#include "rollouts/envs/minigrid/words.h"

namespace rollouts::minigrid {

inline ROLLOUTS_NOINLINE void SayReachGoal(Grid& grid) {
  Say(grid, Word::kGet, Word::kTo, Word::kThe, Word::kGreen, Word::kGoal, Word::kSquare);
}
inline ROLLOUTS_NOINLINE void SayCross(Grid& grid, bool lava) {
  if (lava) {
    Say(grid, Word::kAvoid, Word::kThe, Word::kLava, Word::kAnd);
  } else {
    Say(grid, Word::kFind, Word::kThe, Word::kOpening, Word::kAnd);
  }
  SayReachGoal(grid);
}

// Puts the agent where the options tell, or anywhere.
inline ROLLOUTS_NOINLINE bool StartAgent(const MiniGridConfig& config, Grid& grid, Rng& rng) {
  if (config.random_start) return PlaceAgent(grid, Whole(grid), rng);
  grid.x = config.agent_start_x;
  grid.y = config.agent_start_y;
  grid.dir = config.agent_start_dir;
  return true;
}

inline ROLLOUTS_NOINLINE bool MakeEmpty(const MiniGridConfig& config, Grid& grid, Rng& rng) {
  Enclose(grid, Whole(grid));
  grid.At(grid.width - 2, grid.height - 2) = kGoal;
  SayReachGoal(grid);
  return StartAgent(config, grid, rng);
}

inline ROLLOUTS_NOINLINE bool MakeObstacles(const MiniGridConfig& config, Grid& grid, Rng& rng) {
  if (!MakeEmpty(config, grid, rng)) return false;
  const bool fits = config.n_obstacles <= config.size / 2.0 + 1;
  grid.num_items = fits ? config.n_obstacles : config.size / 2;
  for (std::int32_t i = 0; i < grid.num_items; ++i) {
    grid.items[i] = Place(grid, MakeCell(kBall, kBlue), Whole(grid), rng);
    if (grid.items[i] < 0) return false;
  }
  return true;
}

// Moves each obstacle to a free cell next to it, where one is found.
inline ROLLOUTS_NOINLINE void MoveObstacles(Grid& grid, Rng& rng) {
  for (std::int32_t i = 0; i < grid.num_items; ++i) {
    const std::int32_t from = grid.items[i];
    const Area around = {from % grid.width - 1, from / grid.width - 1, 3, 3};
    const std::int32_t to = FindFree(grid, around, rng, /*tries=*/101,
                                     [](std::int32_t, std::int32_t) { return false; });
    if (to < 0) continue;
    grid.cells[to] = grid.cells[from];
    grid.cells[from] = kEmpty;
    grid.items[i] = to;
  }
}

inline ROLLOUTS_NOINLINE bool MakeDoorKey(const MiniGridConfig&, Grid& grid, Rng& rng) {
  Enclose(grid, Whole(grid));
  grid.At(grid.width - 2, grid.height - 2) = kGoal;
  const std::int32_t split = Draw(rng, 2, grid.width - 2);
  Column(grid, split, 0, grid.height);
  const Area left = {0, 0, split, grid.height};
  if (!PlaceAgent(grid, left, rng)) return false;
  grid.At(split, Draw(rng, 1, grid.height - 2)) = MakeCell(kDoor, kYellow, kLocked);
  Say(grid, Word::kUse, Word::kThe, Word::kKey, Word::kTo, Word::kOpen, Word::kThe, Word::kDoor,
      Word::kAnd, Word::kThen, Word::kGet, Word::kTo, Word::kThe, Word::kGoal);
  return Place(grid, MakeCell(kKey, kYellow), left, rng) >= 0;
}

inline ROLLOUTS_NOINLINE bool MakeFourRooms(const MiniGridConfig& config, Grid& grid, Rng& rng) {
  Enclose(grid, Whole(grid));
  const std::int32_t width = grid.width / 2, height = grid.height / 2;
  for (std::int32_t j = 0; j < 2; ++j) {
    for (std::int32_t i = 0; i < 2; ++i) {
      const std::int32_t x = i * width, y = j * height;
      if (i == 0) {
        Column(grid, x + width, y, height);
        grid.At(x + width, Draw(rng, y + 1, y + height)) = kEmpty;
      }
      if (j == 0) {
        Row(grid, x, y + height, width);
        grid.At(Draw(rng, x + 1, x + width), y + height) = kEmpty;
      }
    }
  }
  Say(grid, Word::kReach, Word::kThe, Word::kGoal);
  if (config.agent_x > 0 && config.agent_y > 0) {
    grid.x = config.agent_x;
    grid.y = config.agent_y;
    grid.At(grid.x, grid.y) = kEmpty;
    grid.dir = Draw(rng, 0, 4);
  } else if (!PlaceAgent(grid, Whole(grid), rng)) {
    return false;
  }
  if (config.goal_x > 0 && config.goal_y > 0) {
    grid.At(config.goal_x, config.goal_y) = kGoal;
    return true;
  }
  return Place(grid, kGoal, Whole(grid), rng) >= 0;
}

// Sorts a few numbers.
inline ROLLOUTS_NOINLINE void Sort(std::int32_t* numbers, std::int32_t count) {
  for (std::int32_t i = 1; i < count; ++i) {
    for (std::int32_t j = i; j > 0 && numbers[j] < numbers[j - 1]; --j) {
      const std::int32_t kept = numbers[j];
      numbers[j] = numbers[j - 1];
      numbers[j - 1] = kept;
    }
  }
}

// Columns and rows of the rivers, with the outer walls around them, sorted.
struct Rivers {
  std::int32_t columns[kMaxSide], rows[kMaxSide];
  std::int32_t num_columns = 0, num_rows = 0;  // without the walls
};
inline ROLLOUTS_NOINLINE Rivers DrawRivers(std::int32_t count, std::int32_t size, Rng& rng) {
  // rivers on every second column, then on every second row
  const std::int32_t each = (size - 3) / 2;
  std::int32_t order[kMaxSide];
  Shuffle(order, 2 * each, rng);
  Rivers rivers;
  rivers.columns[0] = rivers.rows[0] = 0;
  for (std::int32_t k = 0; k < count && k < 2 * each; ++k) {
    if (order[k] < each) {
      rivers.columns[++rivers.num_columns] = 2 + 2 * order[k];
    } else {
      rivers.rows[++rivers.num_rows] = 2 + 2 * (order[k] - each);
    }
  }
  Sort(rivers.columns + 1, rivers.num_columns);
  Sort(rivers.rows + 1, rivers.num_rows);
  rivers.columns[rivers.num_columns + 1] = rivers.rows[rivers.num_rows + 1] = size - 1;
  return rivers;
}

inline ROLLOUTS_NOINLINE bool MakeCrossing(const MiniGridConfig& config, Grid& grid, Rng& rng) {
  Enclose(grid, Whole(grid));
  grid.x = grid.y = 1;
  grid.dir = 0;
  grid.At(grid.width - 2, grid.height - 2) = kGoal;
  const Cell obstacle = config.obstacle_type == 0 ? kLava : kWall;
  const Rivers rivers = DrawRivers(config.num_crossings, grid.width, rng);
  for (std::int32_t k = 1; k <= rivers.num_rows; ++k) {
    Row(grid, 1, rivers.rows[k], grid.width - 2, obstacle);
  }
  for (std::int32_t k = 1; k <= rivers.num_columns; ++k) {
    Column(grid, rivers.columns[k], 1, grid.height - 2, obstacle);
  }

  // a path from room to room, with an opening in each river
  std::int32_t path[kMaxSide];
  const std::int32_t crossings = rivers.num_columns + rivers.num_rows;
  Shuffle(path, crossings, rng);
  std::int32_t i = 0, j = 0;
  for (std::int32_t k = 0; k < crossings; ++k) {
    if (path[k] < rivers.num_columns) {
      const std::int32_t row = Draw(rng, rivers.rows[j] + 1, rivers.rows[j + 1]);
      grid.At(rivers.columns[++i], row) = kEmpty;
    } else {
      const std::int32_t column = Draw(rng, rivers.columns[i] + 1, rivers.columns[i + 1]);
      grid.At(column, rivers.rows[++j]) = kEmpty;
    }
  }
  SayCross(grid, config.obstacle_type == 0);
  return true;
}

inline ROLLOUTS_NOINLINE bool MakeLavaGap(const MiniGridConfig& config, Grid& grid, Rng& rng) {
  Enclose(grid, Whole(grid));
  grid.x = grid.y = 1;
  grid.dir = 0;
  grid.At(grid.width - 2, grid.height - 2) = kGoal;
  const std::int32_t column = Draw(rng, 2, grid.width - 2);
  const std::int32_t gap = Draw(rng, 1, grid.height - 1);
  Column(grid, column, 1, grid.height - 2, config.obstacle_type == 0 ? kLava : kWall);
  grid.At(column, gap) = kEmpty;
  SayCross(grid, config.obstacle_type == 0);
  return true;
}

inline ROLLOUTS_NOINLINE bool MakeDistShift(const MiniGridConfig& config, Grid& grid, Rng& rng) {
  Enclose(grid, Whole(grid));
  grid.At(grid.width - 2, 1) = kGoal;
  Row(grid, 3, 1, grid.width - 6, kLava);
  Row(grid, 3, config.strip2_row, grid.width - 6, kLava);
  SayReachGoal(grid);
  return StartAgent(config, grid, rng);
}

// Draws an inner cell of one of the six rooms next to the hallway.
inline ROLLOUTS_NOINLINE std::int32_t DrawCell(const Grid& grid, const Area& room, Rng& rng) {
  const std::int32_t x = Draw(rng, room.x + 1, room.x + room.width - 1);
  return grid.Index(x, Draw(rng, room.y + 1, room.y + room.height - 1));
}

inline ROLLOUTS_NOINLINE bool MakeLockedRoom(const MiniGridConfig&, Grid& grid, Rng& rng) {
  const std::int32_t left = grid.width / 2 - 2, right = grid.width / 2 + 2;
  const std::int32_t height = grid.height / 3;
  Enclose(grid, Whole(grid));
  Column(grid, left, 0, grid.height);
  Column(grid, right, 0, grid.height);
  Area rooms[6];
  for (std::int32_t n = 0; n < 3; ++n) {
    Row(grid, 0, n * height, left);
    Row(grid, right, n * height, grid.width - right);
    rooms[2 * n] = {0, n * height, left + 1, height + 1};
    rooms[2 * n + 1] = {right, n * height, left + 1, height + 1};
  }

  const std::int32_t locked = Draw(rng, 0, 6);
  grid.cells[DrawCell(grid, rooms[locked], rng)] = kGoal;
  std::int32_t colors[6];
  Shuffle(colors, 6, rng);
  for (std::int32_t r = 0; r < 6; ++r) {
    grid.At(r % 2 ? right : left, rooms[r].y + 3) =
        MakeCell(kDoor, static_cast<std::uint32_t>(colors[r]), r == locked ? kLocked : kClosed);
  }
  std::int32_t key_room = Draw(rng, 0, 5);
  key_room += key_room >= locked;
  const auto color = static_cast<std::uint32_t>(colors[locked]);
  grid.cells[DrawCell(grid, rooms[key_room], rng)] = MakeCell(kKey, color);
  Say(grid, Word::kGet, Word::kThe, ColorWord(color), Word::kKey, Word::kFrom, Word::kThe,
      ColorWord(static_cast<std::uint32_t>(colors[key_room])), Word::kRoom, Word::kComma,
      Word::kUnlock, Word::kThe, ColorWord(color), Word::kDoor, Word::kAnd, Word::kGo, Word::kTo,
      Word::kThe, Word::kGoal);
  return PlaceAgent(grid, {left, 0, right - left, grid.height}, rng);
}

}  // namespace rollouts::minigrid
