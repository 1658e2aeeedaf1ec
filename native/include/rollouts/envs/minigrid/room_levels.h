// SPDX-License-Identifier: Apache-2.0
// Levels of equal rooms: minigrid/envs/unlock.py, unlockpickup.py, blockedunlockpickup.py,
// keycorridor.py, obstructedmaze.py, obstructedmaze_v1.py. The object to pick up has mark 0.
#pragma once

#include "rollouts/envs/minigrid/config.h"
#include "rollouts/envs/minigrid/room_grid.h"
#include "rollouts/envs/minigrid/words.h"

namespace rollouts::minigrid {

inline ROLLOUTS_NOINLINE void SayPickUp(Grid& grid, Cell object) {
  Say(grid, Word::kPick, Word::kUp, Word::kThe);
  SayObject(grid, object);
}

// Unlock, UnlockPickup and BlockedUnlockPickup: two rooms, a locked door between them.
inline ROLLOUTS_NOINLINE bool MakeUnlock(const MiniGridConfig& config, Grid& grid, Rng& rng) {
  Rooms rooms;
  MakeRooms(grid, rooms, 6, 2, 1, rng);
  const bool picks_up = config.level != Level::kUnlock;
  const Cell box = MakeCell(kBox, picks_up ? DrawColor(rng) : 0);
  if (picks_up && PlaceInRoom(grid, rooms, 1, box | Mark(0), rng) < 0) return false;
  const Cell door = AddDoor(grid, rooms, 0, 0, DrawColor(rng), /*locked=*/true);
  grid.items[0] = rooms.doors[0][0];
  if (config.level == Level::kBlockedUnlockPickup) {
    grid.cells[grid.items[0] - 1] = MakeCell(kBall, DrawColor(rng));
  }
  if (PlaceInRoom(grid, rooms, 0, MakeCell(kKey, ColorOf(door)), rng) < 0) return false;
  if (picks_up) {
    SayPickUp(grid, box);
  } else {
    Say(grid, Word::kOpen, Word::kThe, Word::kDoor);
  }
  return PlaceAgentInRoom(grid, rooms, 0, rng);
}

inline ROLLOUTS_NOINLINE bool MakeKeyCorridor(const MiniGridConfig& config, Grid& grid, Rng& rng) {
  Rooms rooms;
  MakeRooms(grid, rooms, config.room_size, 3, config.num_rows, rng);
  for (std::int32_t j = 1; j < config.num_rows; ++j) RemoveWall(grid, rooms, rooms.Of(1, j), 3);
  const std::int32_t locked = rooms.Of(2, Draw(rng, 0, config.num_rows));
  const Cell door = AddDoor(grid, rooms, locked, 2, DrawColor(rng), /*locked=*/true);
  const Cell target =
      MakeCell(kKey + static_cast<std::uint32_t>(config.obj_type), DrawColor(rng));
  if (PlaceInRoom(grid, rooms, locked, target | Mark(0), rng) < 0) return false;
  const std::int32_t key_room = rooms.Of(0, Draw(rng, 0, config.num_rows));
  if (PlaceInRoom(grid, rooms, key_room, MakeCell(kKey, ColorOf(door)), rng) < 0) return false;
  if (!PlaceAgentInRoom(grid, rooms, rooms.Of(1, config.num_rows / 2), rng)) return false;
  SayPickUp(grid, target);
  return ConnectAll(grid, rooms, rng);
}

// Adds a locked door to a maze, with a ball in front of it where doors are blocked.
inline ROLLOUTS_NOINLINE void AddMazeDoor(const MiniGridConfig& config, Grid& grid, Rooms& rooms,
                                    std::int32_t room, std::int32_t wall, std::uint32_t color) {
  AddDoor(grid, rooms, room, wall, color, /*locked=*/true);
  if (!config.blocked) return;
  const std::int32_t before = StepX(wall) + StepY(wall) * grid.width;
  grid.cells[rooms.doors[room][wall] - before] = MakeCell(kBall, kGreen);
}
inline ROLLOUTS_NOINLINE bool AddMazeKey(const MiniGridConfig& config, Grid& grid, Rooms& rooms,
                                         std::int32_t room, std::uint32_t color, Rng& rng) {
  const Cell key = config.key_in_box ? BoxWithKey(kGrey, color) : MakeCell(kKey, color);
  return PlaceInRoom(grid, rooms, room, key, rng) >= 0;
}

// Makes a room next to the middle one, its doors to the left and to the right, and their keys.
// Version 0 draws a key before the next door, whose ball may then replace the key.
inline ROLLOUTS_NOINLINE bool MakeSideRoom(const MiniGridConfig& config, Grid& grid, Rooms& rooms,
                                     std::int32_t side, const std::int32_t* colors, Rng& rng) {
  const std::int32_t room = rooms.Neighbour(rooms.Of(1, 1), side);
  const bool keys_last = config.level == Level::kMazeV1;
  for (std::int32_t pass = 0; pass < (keys_last ? 2 : 1); ++pass) {
    for (std::int32_t k = 0; k < 2; ++k) {
      const std::int32_t turn = side + (k ? 1 : -1);
      const auto color = static_cast<std::uint32_t>(colors[(turn + 6) % 6]);
      if (pass == 0) AddMazeDoor(config, grid, rooms, room, (turn + 4) % 4, color);
      const bool puts_key = pass == 1 || !keys_last;
      if (puts_key && !AddMazeKey(config, grid, rooms, room, color, rng)) return false;
    }
  }
  return true;
}

inline ROLLOUTS_NOINLINE bool MakeMaze(const MiniGridConfig& config, Grid& grid, Rng& rng) {
  const bool small = config.level == Level::kMaze1Dl;
  Rooms rooms;
  MakeRooms(grid, rooms, 6, small ? 2 : 3, small ? 1 : 3, rng);
  std::int32_t colors[kNumColors];
  Shuffle(colors, kNumColors, rng);
  const Cell target = MakeCell(kBall, kBlue);
  SayPickUp(grid, target);
  if (small) {
    const auto color = static_cast<std::uint32_t>(colors[0]);
    AddMazeDoor(config, grid, rooms, 0, 0, color);
    return AddMazeKey(config, grid, rooms, 0, color, rng) &&
           PlaceInRoom(grid, rooms, 1, target | Mark(0), rng) >= 0 &&
           PlaceAgentInRoom(grid, rooms, 0, rng);
  }
  for (std::int32_t side = 0; side < config.num_quarters; ++side) {
    AddDoor(grid, rooms, rooms.Of(1, 1), side, static_cast<std::uint32_t>(colors[side]),
            /*locked=*/false);
    if (!MakeSideRoom(config, grid, rooms, side, colors, rng)) return false;
  }
  // the corners clockwise, beginning with the upper right one
  const std::int32_t corner = Draw(rng, 0, config.num_quarters);
  const std::int32_t column = corner < 2 ? 2 : 0;
  const std::int32_t row = corner == 1 || corner == 2 ? 2 : 0;
  if (PlaceInRoom(grid, rooms, rooms.Of(column, row), target | Mark(0), rng) < 0) return false;
  return PlaceAgentInRoom(grid, rooms, rooms.Of(config.agent_room_x, config.agent_room_y), rng);
}

// Ends all of these levels except Unlock.
inline ROLLOUTS_NOINLINE void EndPickUp(const Grid& grid, std::int32_t action, StepResult& result) {
  if (action != kPickUp || !(MarksOf(grid.carrying) & 1)) return;
  result.reward = grid.Reward();
  result.terminated = true;
}
inline ROLLOUTS_NOINLINE void EndUnlock(const Grid& grid, std::int32_t action, StepResult& result) {
  if (action != kToggle || !IsOpenDoor(grid.cells[grid.items[0]])) return;
  result.reward = grid.Reward();
  result.terminated = true;
}

}  // namespace rollouts::minigrid
