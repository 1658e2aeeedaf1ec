// SPDX-License-Identifier: Apache-2.0
// Objects that levels of BabyAI put into their rooms, and sentences about them
// (minigrid/core/roomgrid.py, minigrid/envs/babyai/core/levelgen.py, roomgrid_level.py).
//
// Functions that draw return false, or -1, where their attempt failed: then the whole level is
// drawn again.
#pragma once

#include "rollouts/envs/babyai/config.h"
#include "rollouts/envs/babyai/task.h"

namespace rollouts::babyai {

using minigrid::Draw;
using minigrid::DrawColor;
using minigrid::DrawType;
using minigrid::MakeCell;

// A level while it is drawn.
struct Drawing {
  const BabyAIConfig& config;
  Grid& grid;
  Task& task;
  Rng& rng;
  Rooms rooms;
  std::int32_t locked_room = -1;
};

ROLLOUTS_HD inline std::int32_t DrawRoom(Drawing& drawing) {
  const std::int32_t column = Draw(drawing.rng, 0, drawing.rooms.columns);
  return drawing.rooms.Of(column, Draw(drawing.rng, 0, drawing.rooms.rows));
}
// minigrid's coin: heads is 0.
inline ROLLOUTS_NOINLINE bool DrawBool(Rng& rng) { return rng.Below(2) == 0; }

inline ROLLOUTS_NOINLINE std::int32_t AddObject(Drawing& drawing, std::int32_t room,
                                                std::uint32_t type, std::uint32_t color) {
  return PlaceInRoom(drawing.grid, drawing.rooms, room, MakeCell(type, color), drawing.rng);
}
// Adds a door in a random wall and of a random colour; returns its cell.
inline ROLLOUTS_NOINLINE Cell AddAnyDoor(Drawing& drawing, std::int32_t room, bool locked) {
  const std::int32_t wall = DrawWall(drawing.rooms, room, drawing.rng);
  return AddDoor(drawing.grid, drawing.rooms, room, wall, DrawColor(drawing.rng), locked);
}
inline ROLLOUTS_NOINLINE bool PutAgent(Drawing& drawing, std::int32_t room) {
  return PlaceAgentInRoom(drawing.grid, drawing.rooms, room, drawing.rng);
}

// Adds objects to a room, or to random rooms (-1); `differ`: no two alike, and none like an earlier
// object.
inline ROLLOUTS_NOINLINE bool AddDistractors(Drawing& drawing, std::int32_t room,
                                             std::int32_t count, bool differ) {
  Rooms& rooms = drawing.rooms;
  for (const std::int32_t end = rooms.num_objects + count; rooms.num_objects < end;) {
    const std::uint32_t color = DrawColor(drawing.rng);
    const std::uint32_t type = DrawType(drawing.rng);
    bool known = false;
    for (std::int32_t i = 0; differ && i < rooms.num_objects; ++i) {
      known |= (drawing.grid.cells[rooms.objects[i]] & minigrid::kShown) == MakeCell(type, color);
    }
    if (known) continue;
    if (AddObject(drawing, room < 0 ? DrawRoom(drawing) : room, type, color) < 0) return false;
  }
  return true;
}

// Tells if the agent can reach everything through doors, including locked ones, and around all
// objects.
inline ROLLOUTS_NOINLINE bool AllReachable(const Grid& grid) {
  static_assert(minigrid::kMaxSide <= 32);
  // a bit for each column; open cells lie inside the outer walls
  std::uint32_t open[minigrid::kMaxSide], seen[minigrid::kMaxSide] = {};
  for (std::int32_t j = 0; j < grid.height; ++j) {
    open[j] = 0;
    for (std::int32_t i = 0; i < grid.width; ++i) {
      const Cell cell = grid.At(i, j);
      const bool passes = minigrid::IsEmpty(cell) || minigrid::TypeOf(cell) == minigrid::kDoor;
      open[j] |= static_cast<std::uint32_t>(passes) << i;
    }
  }
  seen[grid.y] = 1u << grid.x;
  for (bool spreads = true; spreads;) {
    spreads = false;
    for (std::int32_t j = 1; j < grid.height - 1; ++j) {
      const std::uint32_t from = seen[j] & open[j];
      const std::uint32_t beside = from << 1 | from >> 1;
      spreads |= ((beside & ~seen[j]) | (from & ~seen[j - 1]) | (from & ~seen[j + 1])) != 0;
      seen[j] |= beside;
      seen[j - 1] |= from;
      seen[j + 1] |= from;
    }
  }
  for (std::int32_t j = 0; j < grid.height; ++j) {
    for (std::int32_t i = 0; i < grid.width; ++i) {
      const std::uint32_t type = minigrid::TypeOf(grid.At(i, j));
      const bool is_thing = type != minigrid::kNothing && type != minigrid::kWallType;
      if (is_thing && !(seen[j] >> i & 1)) return false;
    }
  }
  return true;
}

// Describes objects of this type and colour.
ROLLOUTS_HD inline Description Like(Cell object) {
  return {static_cast<std::int32_t>(minigrid::TypeOf(object)),
          static_cast<std::int32_t>(minigrid::ColorOf(object)), kAnywhere};
}
ROLLOUTS_HD inline Description OfType(std::uint32_t type) {
  return {static_cast<std::int32_t>(type), -1, kAnywhere};
}
inline ROLLOUTS_NOINLINE bool Tell(Drawing& drawing, Kind kind, const Description& what,
                                   bool strict = false) {
  drawing.task.parts[0] = {kind, strict, what, {}};
  return true;
}
inline ROLLOUTS_NOINLINE bool TellPutNext(Drawing& drawing, Cell what, Cell beside) {
  drawing.task.parts[0] = {kPutNext, 0, Like(what), Like(beside)};
  return true;
}
// Draws one of the objects placed so far, from number `first` on.
inline ROLLOUTS_NOINLINE Cell DrawObject(Drawing& drawing, std::int32_t first) {
  const std::int32_t number = Draw(drawing.rng, first, drawing.rooms.num_objects);
  return drawing.grid.cells[drawing.rooms.objects[number]];
}

// Draws a description that fits some object; false: none was found in 101 tries.
inline ROLLOUTS_NOINLINE bool DrawMeant(Drawing& drawing, bool doors, bool others,
                                        Description& meant) {
  const BabyAIConfig& config = drawing.config;
  Rng& rng = drawing.rng;
  for (std::int32_t i = 0; i < 101; ++i) {
    meant.color = Draw(rng, -1, minigrid::kNumColors);
    // the types are door, key, ball and box; 0 is any of them
    meant.type = Draw(rng, doors ? 4 : 5, others ? 8 : 5);
    meant.where = config.locations && DrawBool(rng) ? Draw(rng, 1, 5) : kAnywhere;
    std::int32_t found = 0;
    for (std::int32_t at = 0; at < drawing.grid.width * drawing.grid.height; ++at) {
      if (!Fits(drawing.grid, drawing.rooms, meant, at)) continue;
      const bool behind_lock =
          drawing.locked_room >= 0 &&
          drawing.rooms.Contains(drawing.locked_room, at % drawing.grid.width,
                                 at / drawing.grid.width);
      found += config.implicit_unlock || !behind_lock;
    }
    if (found > 0) return true;
  }
  return false;
}

// Draws one of the set bits; returns its number.
ROLLOUTS_HD inline std::int32_t DrawBit(std::int32_t bits, Rng& rng) {
  std::int32_t numbers[8], count = 0;
  for (std::int32_t bit = 0; bit < 8; ++bit) {
    if (bits >> bit & 1) numbers[count++] = bit;
  }
  return numbers[Draw(rng, 0, count)];
}

inline ROLLOUTS_NOINLINE bool DrawPart(Drawing& drawing, Instruction& part) {
  part = {};
  // in minigrid's order: go to, pick up, open, put next
  part.kind = DrawBit(drawing.config.action_kinds, drawing.rng);
  const bool any = part.kind == kGoTo, door = part.kind == kOpenIt;
  if (!DrawMeant(drawing, any || door, !door, part.what)) return false;
  return part.kind != kPutNext || DrawMeant(drawing, true, true, part.beside);
}
// `both`: the side has two parts.
inline ROLLOUTS_NOINLINE bool DrawSide(Drawing& drawing, std::int32_t side, bool both) {
  Task& task = drawing.task;
  task.both[side] = both;
  return DrawPart(drawing, task.parts[2 * side]) &&
         (!both || DrawPart(drawing, task.parts[2 * side + 1]));
}
inline ROLLOUTS_NOINLINE bool DrawSentence(Drawing& drawing) {
  // one action, two joined by "and", or a sequence
  const std::int32_t kind = DrawBit(drawing.config.instr_kinds, drawing.rng);
  if (kind < 2) return DrawSide(drawing, 0, kind == 1);
  drawing.task.order = kBefore;  // two sides, each of one or two parts
  for (std::int32_t side = 0; side < 2; ++side) {
    if (!DrawSide(drawing, side, !DrawBool(drawing.rng))) return false;
  }
  drawing.task.order = DrawBool(drawing.rng) ? kBefore : kAfter;
  return true;
}

// Tells if an instruction makes sense: no object is to be put where it is already, and keys that
// open doors are not to be moved where objects may be in the way.
inline ROLLOUTS_NOINLINE bool IsSensible(const Drawing& drawing, const Instruction& part) {
  const Grid& grid = drawing.grid;
  const Rooms& rooms = drawing.rooms;
  const bool puts = part.kind == kPutNext;
  for (std::int32_t at = 0; puts && at < grid.width * grid.height; ++at) {
    if (!Fits(grid, rooms, part.what, at)) continue;
    if (Fits(grid, rooms, part.beside, at)) return false;
    const std::int32_t around[4] = {at - 1, at + 1, at - grid.width, at + grid.width};
    for (const std::int32_t next : around) {
      if (Fits(grid, rooms, part.beside, next)) return false;
    }
  }
  if (drawing.config.level != Level::kAnySentence || !drawing.config.unblocking) return true;
  const auto opens = [&](const Description& meant) {
    if (meant.type != static_cast<std::int32_t>(minigrid::kKey) || meant.color < 0) return false;
    const Cell door =
        MakeCell(minigrid::kDoor, static_cast<std::uint32_t>(meant.color), minigrid::kLocked);
    for (std::int32_t at = 0; at < grid.width * grid.height; ++at) {
      if ((grid.cells[at] & minigrid::kShown) == door) return true;
    }
    return false;
  };
  return !opens(part.what) && !(puts && opens(part.beside));
}

}  // namespace rollouts::babyai
