// SPDX-License-Identifier: Apache-2.0
// Equal rooms in rows and columns, and the objects in them (minigrid/core/roomgrid.py).
#pragma once

#include "rollouts/envs/minigrid/grid.h"

namespace rollouts::minigrid {

inline constexpr std::int32_t kMaxRooms = 9;
inline constexpr std::int32_t kMaxObjects = 48;
inline constexpr std::int32_t kRoomTries = 1001;  // tries to find a free cell of a room

// The rooms while a level is drawn. Walls of a room: 0 right, 1 below, 2 left, 3 above.
struct Rooms {
  enum Way : std::uint8_t { kClosedWall, kDoorway, kNoWall };

  std::int32_t size, columns, rows;
  std::int32_t doors[kMaxRooms][4];  // where a door of a wall may be; -1: an outer wall
  Way ways[kMaxRooms][4];
  bool locked[kMaxRooms];
  std::int32_t objects[kMaxObjects];  // places of the objects, in the order in which they were put
  std::int32_t num_objects;

  ROLLOUTS_HD std::int32_t count() const { return columns * rows; }
  ROLLOUTS_HD std::int32_t Of(std::int32_t i, std::int32_t j) const { return j * columns + i; }
  ROLLOUTS_HD std::int32_t Neighbour(std::int32_t room, std::int32_t wall) const {
    return room + StepX(wall) + StepY(wall) * columns;
  }
  // The room that a cell is in.
  ROLLOUTS_HD std::int32_t At(std::int32_t x, std::int32_t y) const {
    return Of(x / (size - 1), y / (size - 1));
  }
  ROLLOUTS_HD Area AreaOf(std::int32_t room) const {
    return {room % columns * (size - 1), room / columns * (size - 1), size, size};
  }
  ROLLOUTS_HD bool Contains(std::int32_t room, std::int32_t x, std::int32_t y) const {
    const Area area = AreaOf(room);
    return x >= area.x && y >= area.y && x < area.x + size && y < area.y + size;
  }
};

// Makes the walls, without doors, and puts the agent in the middle.
inline ROLLOUTS_NOINLINE void MakeRooms(Grid& grid, Rooms& rooms, std::int32_t size,
                                        std::int32_t columns, std::int32_t rows, Rng& rng) {
  rooms.size = size;
  rooms.columns = columns;
  rooms.rows = rows;
  rooms.num_objects = 0;
  for (std::int32_t room = 0; room < rooms.count(); ++room) {
    Enclose(grid, rooms.AreaOf(room));
    rooms.locked[room] = false;
    for (std::int32_t wall = 0; wall < 4; ++wall) {
      rooms.doors[room][wall] = -1;
      rooms.ways[room][wall] = Rooms::kClosedWall;
    }
  }
  for (std::int32_t room = 0; room < rooms.count(); ++room) {
    const Area area = rooms.AreaOf(room);
    const std::int32_t right = area.x + size - 1, below = area.y + size - 1;
    if (room % columns < columns - 1) {
      const std::int32_t door = grid.Index(right, Draw(rng, area.y + 1, below));
      rooms.doors[room][0] = rooms.doors[room + 1][2] = door;
    }
    if (room / columns < rows - 1) {
      const std::int32_t door = grid.Index(Draw(rng, area.x + 1, right), below);
      rooms.doors[room][1] = rooms.doors[room + columns][3] = door;
    }
  }
  grid.x = columns / 2 * (size - 1) + size / 2;
  grid.y = rows / 2 * (size - 1) + size / 2;
  grid.dir = 0;
}

// Puts a door of a colour into a wall; returns its cell.
inline ROLLOUTS_NOINLINE Cell AddDoor(Grid& grid, Rooms& rooms, std::int32_t room,
                                      std::int32_t wall, std::uint32_t color, bool locked) {
  rooms.locked[room] = locked;
  rooms.ways[room][wall] = Rooms::kDoorway;
  rooms.ways[rooms.Neighbour(room, wall)][(wall + 2) % 4] = Rooms::kDoorway;
  const Cell door = MakeCell(kDoor, color, locked ? kLocked : kClosed);
  grid.cells[rooms.doors[room][wall]] = door;
  return door;
}

// Draws a wall of a room that may have a door and has none.
inline ROLLOUTS_NOINLINE std::int32_t DrawWall(const Rooms& rooms, std::int32_t room, Rng& rng) {
  std::int32_t wall = 0;
  do {
    wall = Draw(rng, 0, 4);
  } while (rooms.doors[room][wall] < 0 || rooms.ways[room][wall] != Rooms::kClosedWall);
  return wall;
}

// Puts an object into a room, not next to the agent. Returns its place, or -1.
inline ROLLOUTS_NOINLINE std::int32_t PlaceInRoom(Grid& grid, Rooms& rooms, std::int32_t room,
                                                  Cell object, Rng& rng) {
  const auto next_to_agent = [&](std::int32_t x, std::int32_t y) {
    const std::int32_t dx = x > grid.x ? x - grid.x : grid.x - x;
    const std::int32_t dy = y > grid.y ? y - grid.y : grid.y - y;
    return dx + dy < 2;
  };
  const std::int32_t at = FindFree(grid, rooms.AreaOf(room), rng, kRoomTries, next_to_agent);
  if (at < 0 || rooms.num_objects == kMaxObjects) return -1;
  grid.cells[at] = object;
  rooms.objects[rooms.num_objects++] = at;
  return at;
}

// Removes a wall of a room.
inline ROLLOUTS_NOINLINE void RemoveWall(Grid& grid, Rooms& rooms, std::int32_t room,
                                         std::int32_t wall) {
  const Area area = rooms.AreaOf(room);
  const std::int32_t inner = rooms.size - 2;
  switch (wall) {
    case 0: Column(grid, area.x + inner + 1, area.y + 1, inner, kEmpty); break;
    case 1: Row(grid, area.x + 1, area.y + inner + 1, inner, kEmpty); break;
    case 2: Column(grid, area.x, area.y + 1, inner, kEmpty); break;
    default: Row(grid, area.x + 1, area.y, inner, kEmpty); break;
  }
  rooms.ways[room][wall] = Rooms::kNoWall;
  rooms.ways[rooms.Neighbour(room, wall)][(wall + 2) % 4] = Rooms::kNoWall;
}

// Puts the agent into a room, not in front of an object.
inline ROLLOUTS_NOINLINE bool PlaceAgentInRoom(Grid& grid, const Rooms& rooms, std::int32_t room,
                                               Rng& rng) {
  for (std::int32_t i = 0; i < kManyTries; ++i) {
    if (!PlaceAgent(grid, rooms.AreaOf(room), rng, kRoomTries)) return false;
    const std::uint32_t front = TypeOf(grid.cells[grid.Front()]);
    if (front == kNothing || front == kWallType) return true;
  }
  return false;
}

// Tells if all rooms are connected, by doors of any kind.
inline ROLLOUTS_NOINLINE bool AllConnected(const Rooms& rooms, std::int32_t start) {
  std::uint32_t reached = 1u << start;
  for (std::uint32_t before = 0; before != reached;) {
    before = reached;
    for (std::int32_t room = 0; room < rooms.count(); ++room) {
      if (!(reached >> room & 1)) continue;
      for (std::int32_t wall = 0; wall < 4; ++wall) {
        const bool open = rooms.ways[room][wall] != Rooms::kClosedWall;
        if (open) reached |= 1u << rooms.Neighbour(room, wall);
      }
    }
  }
  return reached == (1u << rooms.count()) - 1;
}

// Adds doors until all rooms are connected with the agent's room. No door has the colour `but`.
// False: too many attempts.
inline ROLLOUTS_NOINLINE bool ConnectAll(Grid& grid, Rooms& rooms, Rng& rng,
                                         std::int32_t but = -1) {
  const std::int32_t start = rooms.At(grid.x, grid.y);
  for (std::int32_t i = 0; i <= 5000; ++i) {
    if (AllConnected(rooms, start)) return true;
    const std::int32_t column = Draw(rng, 0, rooms.columns);
    const std::int32_t room = rooms.Of(column, Draw(rng, 0, rooms.rows));
    const std::int32_t wall = Draw(rng, 0, 4);
    if (rooms.doors[room][wall] < 0 || rooms.ways[room][wall] != Rooms::kClosedWall) continue;
    if (rooms.locked[room] || rooms.locked[rooms.Neighbour(room, wall)]) continue;
    std::int32_t color = Draw(rng, 0, but < 0 ? kNumColors : kNumColors - 1);
    color += but >= 0 && color >= but;
    AddDoor(grid, rooms, room, wall, static_cast<std::uint32_t>(color), /*locked=*/false);
  }
  return false;
}

}  // namespace rollouts::minigrid
