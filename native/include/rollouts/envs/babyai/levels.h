// SPDX-License-Identifier: Apache-2.0
// The levels of BabyAI: minigrid/envs/babyai/goto.py, open.py, pickup.py, putnext.py, unlock.py,
// other.py, synth.py. Draws are in minigrid's order.
#pragma once

#include "rollouts/envs/babyai/draw.h"

namespace rollouts::babyai {

using minigrid::kBall;
using minigrid::kBox;
using minigrid::kDoor;
using minigrid::kKey;

// Makes one room with objects and the agent.
inline ROLLOUTS_NOINLINE bool MakeGoToRedBall(Drawing& d) {
  const BabyAIConfig& config = d.config;
  if (!PutAgent(d, DrawRoom(d))) return false;
  const bool either = config.level == Level::kGoToRedBlueBall;
  if (!either && AddObject(d, 0, kBall, minigrid::kRed) < 0) return false;
  const std::int32_t first = d.rooms.num_objects;
  if (!AddDistractors(d, -1, config.num_dists, /*differ=*/false)) return false;
  Cell target = MakeCell(kBall, minigrid::kRed);
  for (std::int32_t i = first; i < d.rooms.num_objects; ++i) {
    Cell& other = d.grid.cells[d.rooms.objects[i]];
    if (config.level == Level::kGoToRedBallGrey) {
      other = MakeCell(minigrid::TypeOf(other), minigrid::kGrey);
    }
    const bool blue = other == MakeCell(kBall, minigrid::kBlue);
    if (either && (blue || other == target)) return false;
  }
  if (either) {
    if (!DrawBool(d.rng)) target = MakeCell(kBall, minigrid::kBlue);
    if (AddObject(d, 0, kBall, minigrid::ColorOf(target)) < 0) return false;
  }
  return AllReachable(d.grid) && Tell(d, kGoTo, Like(target));
}
inline ROLLOUTS_NOINLINE bool MakeGoToObj(Drawing& d) {
  return PutAgent(d, DrawRoom(d)) && AddDistractors(d, -1, 1, /*differ=*/true) &&
         Tell(d, kGoTo, Like(DrawObject(d, 0)));
}
inline ROLLOUTS_NOINLINE bool MakeGoToLocal(Drawing& d) {
  return PutAgent(d, DrawRoom(d)) && AddDistractors(d, -1, d.config.num_dists, false) &&
         AllReachable(d.grid) && Tell(d, kGoTo, Like(DrawObject(d, 0)));
}

// Fills a maze of rooms with objects anywhere.
inline ROLLOUTS_NOINLINE bool FillMaze(Drawing& d, std::int32_t count) {
  return PutAgent(d, DrawRoom(d)) && ConnectAll(d.grid, d.rooms, d.rng) &&
         AddDistractors(d, -1, count, /*differ=*/false);
}
inline ROLLOUTS_NOINLINE bool MakeGoTo(Drawing& d) {
  if (!FillMaze(d, d.config.num_dists) || !AllReachable(d.grid)) return false;
  Tell(d, kGoTo, Like(DrawObject(d, 0)));
  for (std::int32_t at = 0; d.config.doors_open && at < d.grid.width * d.grid.height; ++at) {
    Cell& cell = d.grid.cells[at];
    if (minigrid::TypeOf(cell) == kDoor) cell = minigrid::WithState(cell, minigrid::kOpen);
  }
  return true;
}
inline ROLLOUTS_NOINLINE bool MakePickup(Drawing& d) {
  const bool blocked = d.config.level == Level::kUnblockPickup;
  return FillMaze(d, blocked ? 20 : 18) && AllReachable(d.grid) != blocked &&
         Tell(d, kPickUpIt, Like(DrawObject(d, 0)));
}
inline ROLLOUTS_NOINLINE bool MakeOpen(Drawing& d) {
  if (!FillMaze(d, 18) || !AllReachable(d.grid)) return false;
  // each door belongs to both its rooms, so all doors have equal probability
  std::int32_t doors[2 * minigrid::kMaxRooms], count = 0;
  for (std::int32_t room = 0; room < d.rooms.count(); ++room) {
    for (std::int32_t wall = 0; wall < 2; ++wall) {
      if (d.rooms.ways[room][wall] == Rooms::kDoorway) doors[count++] = d.rooms.doors[room][wall];
    }
  }
  return Tell(d, kOpenIt, Like(d.grid.cells[doors[Draw(d.rng, 0, count)]]));
}

// Makes a room behind a locked door, whose key is anywhere. minigrid means to exclude the locked
// room, but compares numbers of rooms by `is`, which is false for two objects even if they are
// equal. So the key may be in the locked room, and objects are in all rooms.
inline ROLLOUTS_NOINLINE bool MakeBehindLock(Drawing& d) {
  const bool unlock = d.config.level == Level::kUnlock;
  const std::int32_t locked = DrawRoom(d);
  const Cell door = AddAnyDoor(d, locked, /*locked=*/true);
  if (AddObject(d, DrawRoom(d), kKey, minigrid::ColorOf(door)) < 0) return false;
  const bool alone = unlock && DrawBool(d.rng);
  const std::int32_t but = alone ? static_cast<std::int32_t>(minigrid::ColorOf(door)) : -1;
  if (!ConnectAll(d.grid, d.rooms, d.rng, but)) return false;
  for (std::int32_t i = 0; i < d.rooms.columns; ++i) {
    for (std::int32_t j = 0; j < d.rooms.rows; ++j) {
      if (!AddDistractors(d, d.rooms.Of(i, j), unlock ? 3 : 2, /*differ=*/false)) return false;
    }
  }
  do {
    if (!PutAgent(d, DrawRoom(d))) return false;
  } while (d.rooms.At(d.grid.x, d.grid.y) == locked);
  if (!AllReachable(d.grid)) return false;
  if (unlock) return Tell(d, kOpenIt, Like(door));
  const std::int32_t first = d.rooms.num_objects;
  return AddDistractors(d, locked, 1, /*differ=*/false) &&
         Tell(d, kGoTo, Like(DrawObject(d, first)));
}

// Makes the middle room and its four doors.
inline ROLLOUTS_NOINLINE bool MakeDoors(Drawing& d) {
  const Level level = d.config.level;
  const std::int32_t middle = d.rooms.Of(1, 1);
  const bool objects = level != Level::kGoToDoor, acts = level == Level::kActionObjDoor;
  if (level == Level::kGoToObjDoor && !PutAgent(d, middle)) return false;
  if (objects && !AddDistractors(d, middle, acts ? 5 : 8, /*differ=*/acts)) return false;
  Cell doors[4];
  for (Cell& door : doors) {
    const std::int32_t wall = DrawWall(d.rooms, middle, d.rng);
    const std::uint32_t color = DrawColor(d.rng);
    door = AddDoor(d.grid, d.rooms, middle, wall, color, !acts && DrawBool(d.rng));
  }
  if (level != Level::kGoToObjDoor && !PutAgent(d, middle)) return false;
  if (level == Level::kGoToObjDoor && !AllReachable(d.grid)) return false;
  const std::int32_t number = Draw(d.rng, 0, d.rooms.num_objects + 4);
  const bool is_door = number >= d.rooms.num_objects;
  const Cell target = is_door ? doors[number - d.rooms.num_objects]
                              : d.grid.cells[d.rooms.objects[number]];
  const bool goes = !acts || DrawBool(d.rng);
  return Tell(d, goes ? kGoTo : (is_door ? kOpenIt : kPickUpIt), Like(target));
}

inline ROLLOUTS_NOINLINE bool MakeOpenDoor(Drawing& d) {
  const std::int32_t middle = d.rooms.Of(1, 1);
  std::int32_t colors[minigrid::kNumColors];
  minigrid::Shuffle(colors, minigrid::kNumColors, d.rng);
  for (std::int32_t wall = 0; wall < 4; ++wall) {
    AddDoor(d.grid, d.rooms, middle, wall, static_cast<std::uint32_t>(colors[wall]), false);
  }
  Description meant = OfType(kDoor);
  const bool by_color = d.config.select_by == 1 || (d.config.select_by == 0 && DrawBool(d.rng));
  if (by_color) {
    meant.color = colors[0];
  } else {
    meant.where = Draw(d.rng, 1, 5);
  }
  return PutAgent(d, middle) && Tell(d, kOpenIt, meant, d.config.strict);
}

// Makes the instruction to open one door, or two in their order.
inline ROLLOUTS_NOINLINE void TellDoors(Drawing& d, Order order, Cell first, Cell second,
                                        bool strict_second) {
  d.task.order = order;
  d.task.parts[0] = {kOpenIt, d.config.strict, Like(first), {}};
  d.task.parts[2] = {kOpenIt, strict_second, Like(second), {}};
}
inline ROLLOUTS_NOINLINE bool MakeOpenDoors(Drawing& d) {
  const std::int32_t middle = d.rooms.Of(1, 1);
  std::int32_t colors[minigrid::kNumColors];
  minigrid::Shuffle(colors, minigrid::kNumColors, d.rng);
  if (d.config.level == Level::kOpenTwoDoors) {
    const auto first = d.config.red_blue ? minigrid::kRed : static_cast<std::uint32_t>(colors[0]);
    const auto other = d.config.red_blue ? minigrid::kBlue : static_cast<std::uint32_t>(colors[1]);
    const Cell left = AddDoor(d.grid, d.rooms, middle, 2, first, /*locked=*/false);
    const Cell right = AddDoor(d.grid, d.rooms, middle, 0, other, /*locked=*/false);
    TellDoors(d, kBefore, left, right, /*strict_second=*/false);
    return PutAgent(d, middle);
  }
  for (std::int32_t i = 0; i < d.config.num_doors; ++i) {
    const std::int32_t wall = DrawWall(d.rooms, middle, d.rng);
    AddDoor(d.grid, d.rooms, middle, wall, static_cast<std::uint32_t>(colors[i]), false);
  }
  if (!PutAgent(d, middle)) return false;
  const std::int32_t first = Draw(d.rng, 0, d.config.num_doors);
  std::int32_t second = Draw(d.rng, 0, d.config.num_doors - 1);
  second += second >= first;
  const auto order = static_cast<Order>(Draw(d.rng, 0, 3));
  TellDoors(d, order, MakeCell(kDoor, static_cast<std::uint32_t>(colors[first])),
            MakeCell(kDoor, static_cast<std::uint32_t>(colors[second])), d.config.strict);
  return true;
}

inline ROLLOUTS_NOINLINE bool MakePickupDist(Drawing& d) {
  if (!AddDistractors(d, -1, 5, /*differ=*/true) || !PutAgent(d, 0)) return false;
  Description meant = Like(DrawObject(d, 0));
  // the sentence names the type, the colour or both
  const std::int32_t by = Draw(d.rng, 0, 3);
  if (by == 0) meant.color = -1;
  if (by == 1) meant.type = 0;
  return Tell(d, kPickUpIt, meant, d.config.strict);
}
inline ROLLOUTS_NOINLINE bool MakePickupAbove(Drawing& d) {
  const std::uint32_t type = DrawType(d.rng), color = DrawColor(d.rng);
  if (AddObject(d, d.rooms.Of(1, 0), type, color) < 0) return false;
  const std::int32_t middle = d.rooms.Of(1, 1);
  AddDoor(d.grid, d.rooms, middle, 3, DrawColor(d.rng), /*locked=*/false);
  return PutAgent(d, middle) && ConnectAll(d.grid, d.rooms, d.rng) &&
         Tell(d, kPickUpIt, Like(MakeCell(type, color)));
}

inline ROLLOUTS_NOINLINE bool MakePutNextLocal(Drawing& d) {
  const std::int32_t count = d.config.num_dists;
  if (!PutAgent(d, DrawRoom(d)) || !AddDistractors(d, -1, count, /*differ=*/true)) return false;
  if (!AllReachable(d.grid)) return false;
  const std::int32_t first = Draw(d.rng, 0, count);
  std::int32_t second = Draw(d.rng, 0, count - 1);
  second += second >= first;
  const std::int32_t* objects = d.rooms.objects;
  return TellPutNext(d, d.grid.cells[objects[first]], d.grid.cells[objects[second]]);
}
// Makes two rooms without the wall between them.
inline ROLLOUTS_NOINLINE bool MakePutNext(Drawing& d) {
  const std::int32_t each = d.config.objs_per_room;
  if (!PutAgent(d, 0) || !AddDistractors(d, 0, each, true) || !AddDistractors(d, 1, each, true)) {
    return false;
  }
  RemoveWall(d.grid, d.rooms, 0, 0);
  const auto object = [&](std::int32_t number) { return d.grid.cells[d.rooms.objects[number]]; };
  if (d.config.level == Level::kPutNext) {
    const Cell left = object(Draw(d.rng, 0, each)), right = object(each + Draw(d.rng, 0, each));
    return DrawBool(d.rng) ? TellPutNext(d, right, left) : TellPutNext(d, left, right);
  }
  std::int32_t left[9], right[9];
  minigrid::Shuffle(left, each, d.rng);
  minigrid::Shuffle(right, each, d.rng);
  d.task.order = kBefore;
  d.task.parts[0] = {kPutNext, 0, Like(object(left[0])), Like(object(each + right[0]))};
  d.task.parts[2] = {kPutNext, 0, Like(object(each + right[1])), Like(object(left[1]))};
  return true;
}

inline ROLLOUTS_NOINLINE bool MakeUnlockLocal(Drawing& d) {
  const std::int32_t middle = d.rooms.Of(1, 1);
  const std::uint32_t color = minigrid::ColorOf(AddAnyDoor(d, middle, /*locked=*/true));
  const bool boxed = d.config.level == Level::kKeyInBox;
  const Cell key =
      boxed ? minigrid::BoxWithKey(DrawColor(d.rng), color) : MakeCell(kKey, color);
  if (PlaceInRoom(d.grid, d.rooms, middle, key, d.rng) < 0) return false;
  if (d.config.distractors && !AddDistractors(d, middle, 3, /*differ=*/true)) return false;
  return PutAgent(d, middle) && Tell(d, kOpenIt, OfType(kDoor));
}
inline ROLLOUTS_NOINLINE bool MakeUnlockPickup(Drawing& d) {
  const std::uint32_t box = DrawColor(d.rng);
  if (AddObject(d, 1, kBox, box) < 0) return false;
  const std::uint32_t color = DrawColor(d.rng);
  AddDoor(d.grid, d.rooms, 0, 0, color, /*locked=*/true);
  const bool blocked = d.config.level == Level::kBlockedUnlockPickup;
  if (blocked) {
    d.grid.cells[d.rooms.doors[0][0] - 1] = MakeCell(kBall, DrawColor(d.rng));
  }
  if (AddObject(d, 0, kKey, color) < 0) return false;
  if (d.config.distractors && !AddDistractors(d, -1, 4, /*differ=*/true)) return false;
  return PutAgent(d, 0) &&
         Tell(d, kPickUpIt, blocked ? OfType(kBox) : Like(MakeCell(kBox, box)));
}
inline ROLLOUTS_NOINLINE bool MakeUnlockToUnlock(Drawing& d) {
  std::int32_t colors[minigrid::kNumColors];
  minigrid::Shuffle(colors, minigrid::kNumColors, d.rng);
  const auto first = static_cast<std::uint32_t>(colors[0]);
  const auto second = static_cast<std::uint32_t>(colors[1]);
  AddDoor(d.grid, d.rooms, 0, 0, first, /*locked=*/true);
  if (AddObject(d, 2, kKey, first) < 0) return false;
  AddDoor(d.grid, d.rooms, 1, 0, second, /*locked=*/true);
  return AddObject(d, 1, kKey, second) >= 0 && AddObject(d, 0, kBall, DrawColor(d.rng)) >= 0 &&
         PutAgent(d, 1) && Tell(d, kPickUpIt, OfType(kBall));
}
inline ROLLOUTS_NOINLINE bool MakeFindObj(Drawing& d) {
  const std::int32_t room = DrawRoom(d);
  const std::uint32_t type = DrawType(d.rng);
  return AddObject(d, room, type, DrawColor(d.rng)) >= 0 && PutAgent(d, d.rooms.Of(1, 1)) &&
         ConnectAll(d.grid, d.rooms, d.rng) && Tell(d, kPickUpIt, OfType(type));
}
inline ROLLOUTS_NOINLINE bool MakeKeyCorridor(Drawing& d) {
  const std::int32_t rows = d.config.num_rows;
  for (std::int32_t j = 1; j < rows; ++j) RemoveWall(d.grid, d.rooms, d.rooms.Of(1, j), 3);
  const std::int32_t locked = d.rooms.Of(2, Draw(d.rng, 0, rows));
  const std::uint32_t color = DrawColor(d.rng);
  AddDoor(d.grid, d.rooms, locked, 2, color, /*locked=*/true);
  if (AddObject(d, locked, kBall, DrawColor(d.rng)) < 0) return false;
  if (AddObject(d, d.rooms.Of(0, Draw(d.rng, 0, rows)), kKey, color) < 0) return false;
  return PutAgent(d, d.rooms.Of(1, rows / 2)) && ConnectAll(d.grid, d.rooms, d.rng) &&
         Tell(d, kPickUpIt, OfType(kBall));
}
inline ROLLOUTS_NOINLINE bool MakeOneRoom(Drawing& d) {
  return AddObject(d, 0, kBall, DrawColor(d.rng)) >= 0 && PutAgent(d, DrawRoom(d)) &&
         Tell(d, kPickUpIt, OfType(kBall));
}

// Adds a locked room, and its key in another room.
inline ROLLOUTS_NOINLINE bool AddLockedRoom(Drawing& d) {
  std::int32_t wall = 0;
  do {
    d.locked_room = DrawRoom(d);
    wall = Draw(d.rng, 0, 4);
  } while (d.rooms.doors[d.locked_room][wall] < 0);
  const std::uint32_t color = DrawColor(d.rng);
  AddDoor(d.grid, d.rooms, d.locked_room, wall, color, /*locked=*/true);
  std::int32_t key_room = 0;
  do {
    key_room = DrawRoom(d);
  } while (key_room == d.locked_room);
  return AddObject(d, key_room, kKey, color) >= 0;
}
inline ROLLOUTS_NOINLINE bool MakeAnySentence(Drawing& d) {
  if (d.rng.Uniform() < d.config.locked_room_prob && !AddLockedRoom(d)) return false;
  if (!ConnectAll(d.grid, d.rooms, d.rng)) return false;
  if (!AddDistractors(d, -1, d.config.num_dists, /*differ=*/false)) return false;
  do {
    if (!PutAgent(d, DrawRoom(d))) return false;
  } while (d.rooms.At(d.grid.x, d.grid.y) == d.locked_room);
  return (d.config.unblocking || AllReachable(d.grid)) && DrawSentence(d);
}

}  // namespace rollouts::babyai
