// SPDX-License-Identifier: Apache-2.0
// Levels of walls and doors: minigrid/envs/multiroom.py, memory.py, redbluedoors.py,
// playground.py.
#pragma once

#include "rollouts/envs/minigrid/config.h"
#include "rollouts/envs/minigrid/words.h"

namespace rollouts::minigrid {

// A room and the door that leads into it.
struct EnteredRoom {
  Area area;
  std::int32_t door_x, door_y, wall;  // wall of the door: 0 right, 1 below, 2 left, 3 above
};

// Draws the place of a room with this door.
inline ROLLOUTS_NOINLINE Area DrawArea(const EnteredRoom& room, bool first, std::int32_t width,
                                       std::int32_t height, Rng& rng) {
  const std::int32_t x = room.door_x, y = room.door_y;
  if (first) return {x, y, width, height};
  switch (room.wall) {
    case 0: return {x - width + 1, Draw(rng, y - height + 2, y), width, height};
    case 1: return {Draw(rng, x - width + 2, x), y - height + 1, width, height};
    case 2: return {x, Draw(rng, y - height + 2, y), width, height};
    default: return {Draw(rng, x - width + 2, x), y, width, height};
  }
}

// Tells if the area is in the grid, and apart from all rooms except the last.
inline ROLLOUTS_NOINLINE bool Fits(const Area& area, const MiniGridConfig& config,
                                   const EnteredRoom* rooms, std::int32_t count) {
  if (area.x < 0 || area.y < 0) return false;
  if (area.x + area.width > config.grid_width) return false;
  if (area.y + area.height >= config.grid_height) return false;
  for (std::int32_t i = 0; i + 1 < count; ++i) {
    const Area& other = rooms[i].area;
    const bool apart = area.x + area.width < other.x || other.x + other.width <= area.x ||
                       area.y + area.height < other.y || other.y + other.height <= area.y;
    if (!apart) return false;
  }
  return true;
}

// Draws a door in another wall of a room than its entrance; it becomes the next room's entrance.
inline ROLLOUTS_NOINLINE EnteredRoom DrawExit(const EnteredRoom& room, Rng& rng) {
  const Area& area = room.area;
  std::int32_t wall = Draw(rng, 0, 3);
  wall += wall >= room.wall;
  EnteredRoom next = {};
  next.wall = (wall + 2) % 4;
  next.door_x = wall == 0 ? area.x + area.width - 1 : area.x;
  next.door_y = wall == 1 ? area.y + area.height - 1 : area.y;
  if (wall % 2 == 0) {
    next.door_y = area.y + Draw(rng, 1, area.height - 1);
  } else {
    next.door_x = area.x + Draw(rng, 1, area.width - 1);
  }
  return next;
}

// Makes one attempt at a chain of rooms; returns how many rooms it has.
inline ROLLOUTS_NOINLINE std::int32_t DrawRooms(const MiniGridConfig& config, std::int32_t wanted,
                                                EnteredRoom* rooms, Rng& rng) {
  std::int32_t count = 0;
  EnteredRoom next = {};
  next.door_x = Draw(rng, 0, config.grid_width - 2);
  next.door_y = Draw(rng, 0, config.grid_width - 2);
  next.wall = 2;
  for (std::int32_t tries = 0; count < wanted && tries < (count ? 8 : 1); ++tries) {
    if (count) next = DrawExit(rooms[count - 1], rng);
    const std::int32_t width = Draw(rng, 4, config.max_room_size + 1);
    const std::int32_t height = Draw(rng, 4, config.max_room_size + 1);
    next.area = DrawArea(next, count == 0, width, height, rng);
    if (!Fits(next.area, config, rooms, count)) continue;
    rooms[count++] = next;
    tries = -1;
  }
  return count;
}

inline ROLLOUTS_NOINLINE bool MakeMultiRoom(const MiniGridConfig& config, Grid& grid, Rng& rng) {
  const std::int32_t wanted = Draw(rng, config.min_num_rooms, config.max_num_rooms + 1);
  EnteredRoom rooms[8], tried[8];
  std::int32_t count = 0;
  for (std::int32_t i = 0; i < kManyTries && count < wanted; ++i) {
    const std::int32_t made = DrawRooms(config, wanted, tried, rng);
    if (made <= count) continue;
    for (std::int32_t r = 0; r < made; ++r) rooms[r] = tried[r];
    count = made;
  }
  if (count == 0) return false;

  // a door has another colour than the door before it
  std::int32_t color = -1;
  for (std::int32_t r = 0; r < count; ++r) {
    Enclose(grid, rooms[r].area);
    if (r == 0) continue;
    // drawn by number; the reference draws by name, with the same probabilities
    std::int32_t next = Draw(rng, 0, color < 0 ? kNumColors : kNumColors - 1);
    next += color >= 0 && next >= color;
    color = next;
    grid.At(rooms[r].door_x, rooms[r].door_y) =
        MakeCell(kDoor, static_cast<std::uint32_t>(color), kClosed);
  }
  Say(grid, Word::kTraverse, Word::kThe, Word::kRooms, Word::kTo, Word::kGet, Word::kTo,
      Word::kThe, Word::kGoal);
  return PlaceAgent(grid, rooms[0].area, rng) &&
         Place(grid, kGoal, rooms[count - 1].area, rng) >= 0;
}

inline ROLLOUTS_NOINLINE bool MakeMemory(const MiniGridConfig& config, Grid& grid, Rng& rng) {
  Enclose(grid, Whole(grid));
  const std::int32_t middle = grid.height / 2;
  const std::int32_t end =
      config.random_length ? Draw(rng, 4, grid.width - 2) : grid.width - 3;
  for (std::int32_t side = -1; side <= 1; side += 2) {
    Row(grid, 1, middle + 2 * side, 4);
    grid.At(4, middle + side) = kWall;
    for (std::int32_t i = 5; i < end; ++i) grid.At(i, middle + side) = kWall;
  }
  for (std::int32_t j = 0; j < grid.height; ++j) {
    if (j != middle) grid.At(end, j) = kWall;
    grid.At(end + 2, j) = kWall;
  }
  grid.x = Draw(rng, 1, end + 1);
  grid.y = middle;
  grid.dir = 0;

  // one object at the start, both kinds at the end
  const std::uint32_t shown = DrawType(rng, /*boxes=*/false);
  const std::uint32_t upper = DrawType(rng, /*boxes=*/false);
  grid.At(1, middle - 1) = MakeCell(shown, kGreen);
  grid.At(end + 1, middle - 2) = MakeCell(upper, kGreen);
  grid.At(end + 1, middle + 2) = MakeCell(upper == kKey ? kBall : kKey, kGreen);
  const std::int32_t side = shown == upper ? -1 : 1;
  grid.items[0] = grid.Index(end + 1, middle + side);
  grid.items[1] = grid.Index(end + 1, middle - side);
  Say(grid, Word::kGo, Word::kTo, Word::kThe, Word::kMatching, Word::kObject, Word::kAt,
      Word::kThe, Word::kEnd, Word::kOf, Word::kThe, Word::kHallway);
  return true;
}
inline ROLLOUTS_NOINLINE void EndMemory(const Grid& grid, StepResult& result) {
  const std::int32_t at = grid.Index(grid.x, grid.y);
  if (at != grid.items[0] && at != grid.items[1]) return;
  result.reward = at == grid.items[0] ? grid.Reward() : 0;
  result.terminated = true;
}

inline ROLLOUTS_NOINLINE bool MakeRedBlueDoors(const MiniGridConfig& config, Grid& grid, Rng& rng) {
  const std::int32_t size = config.size;
  const Area room = {size / 2, 0, size, size};
  Enclose(grid, Whole(grid));
  Enclose(grid, room);
  if (!PlaceAgent(grid, room, rng)) return false;
  grid.items[0] = grid.Index(size / 2, Draw(rng, 1, size - 1));
  grid.items[1] = grid.Index(size / 2 + size - 1, Draw(rng, 1, size - 1));
  grid.cells[grid.items[0]] = MakeCell(kDoor, kRed, kClosed);
  grid.cells[grid.items[1]] = MakeCell(kDoor, kBlue, kClosed);
  Say(grid, Word::kOpen, Word::kThe, Word::kRed, Word::kDoor, Word::kThen, Word::kThe, Word::kBlue,
      Word::kDoor);
  return true;
}
// `red`, `blue`: whether the doors were open before the step.
inline ROLLOUTS_NOINLINE void EndRedBlueDoors(const Grid& grid, bool red, bool blue,
                                              StepResult& result) {
  if (IsOpenDoor(grid.cells[grid.items[1]])) {
    result.reward = red ? grid.Reward() : 0;
    result.terminated = true;
  } else if (IsOpenDoor(grid.cells[grid.items[0]]) && blue) {
    result.reward = 0;
    result.terminated = true;
  }
}

inline ROLLOUTS_NOINLINE bool MakePlayground(const MiniGridConfig&, Grid& grid, Rng& rng) {
  Enclose(grid, Whole(grid));
  const std::int32_t width = grid.width / 3, height = grid.height / 3;
  for (std::int32_t j = 0; j < 3; ++j) {
    for (std::int32_t i = 0; i < 3; ++i) {
      const std::int32_t x = i * width, y = j * height;
      if (i < 2) {
        Column(grid, x + width, y, height);
        const std::int32_t at = Draw(rng, y + 1, y + height - 1);
        grid.At(x + width, at) = MakeCell(kDoor, DrawColor(rng), kClosed);
      }
      if (j < 2) {
        Row(grid, x, y + height, width);
        const std::int32_t at = Draw(rng, x + 1, x + width - 1);
        grid.At(at, y + height) = MakeCell(kDoor, DrawColor(rng), kClosed);
      }
    }
  }
  if (!PlaceAgent(grid, Whole(grid), rng)) return false;
  for (std::int32_t i = 0; i < 12; ++i) {
    const std::uint32_t type = DrawType(rng);
    if (Place(grid, MakeCell(type, DrawColor(rng)), Whole(grid), rng) < 0) return false;
  }
  return true;
}

}  // namespace rollouts::minigrid
