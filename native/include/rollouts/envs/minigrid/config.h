// SPDX-License-Identifier: Apache-2.0
// Options of MiniGrid: the level, its size, and its observations.
#pragma once

#include "rollouts/core/env.h"
#include "rollouts/envs/minigrid/grid.h"
#include "rollouts/envs/minigrid/view.h"

namespace rollouts::minigrid {

// Kinds of an observation's image, after minigrid's wrappers.
enum Mode : std::int32_t { kPartial, kFull, kOneHot, kSymbolic, kFlat, kRgb, kRgbPartial };
inline constexpr const char* kModes[] = {"partial", "full", "one_hot",    "symbolic",
                                         "flat",    "rgb",  "rgb_partial"};
inline constexpr std::int32_t kMaxTile = 64;  // pixels of a side

// Options that MiniGrid and BabyAI have in common.
struct ShownConfig {
  std::int32_t observation = kPartial;  // image: 'partial' (the agent's view), 'full' (the grid), 'one_hot' (the view, a number for each value), 'symbolic' (column, row and type of each cell), 'flat' (view and mission's letters in one row), 'rgb' (the grid in pixels) or 'rgb_partial' (the view in pixels), as minigrid's wrappers
  std::int32_t agent_view_size = 7;  // cells of a side of the agent's view, odd
  bool see_through_walls = false;  // walls and doors hide nothing
  std::int32_t tile_size = 8;  // pixels of a side of a cell where observation is 'rgb' or 'rgb_partial'
  bool highlight = true;  // what the agent sees is lighter where observation is 'rgb', and in frames
  std::int32_t max_steps = 0;  // steps after which an episode is truncated, on which the reward of success depends; 0: minigrid's number for a level of this size
};

// Tells if observations are pixels, which only a CPU's pool draws.
ROLLOUTS_HD constexpr bool IsPicture(const ShownConfig& config) {
  return config.observation == kRgb || config.observation == kRgbPartial;
}
// The option that kernels do not support, or null.
constexpr const char* HostOnlyOf(const ShownConfig& config) {
  if (!IsPicture(config)) return nullptr;
  return config.observation == kRgb ? "observation='rgb'" : "observation='rgb_partial'";
}

template <typename Visitor>
void VisitShown(ShownConfig& config, Visitor& visit) {
  visit.Word("observation", config.observation, kModes);
  visit("agent_view_size", config.agent_view_size);
  visit("see_through_walls", config.see_through_walls);
  visit("tile_size", config.tile_size);
  visit("highlight", config.highlight);
  visit("max_steps", config.max_steps);
}

template <typename Check>
void CheckShown(const ShownConfig& config, Check& check) {
  check.Between("agent_view_size", config.agent_view_size, 3, kMaxView);
  check.Odd("agent_view_size", config.agent_view_size);
  check.Between("tile_size", config.tile_size, 1, kMaxTile);
  check.Between("max_steps", config.max_steps, 0, 1'000'000'000);
}

enum class Level : std::int32_t {
  kEmpty, kDoorKey, kFourRooms, kCrossing, kLavaGap, kDistShift, kMultiRoom, kLockedRoom, kMemory,
  kRedBlueDoors, kPlayground, kObstacles, kFetch, kGoToDoor, kGoToObject, kPutNear, kUnlock,
  kUnlockPickup, kBlockedUnlockPickup, kKeyCorridor, kMaze1Dl, kMaze, kMazeV1
};

inline constexpr const char* kObstacleTypes[] = {"lava", "wall"};
inline constexpr const char* kObjectTypes[] = {"key", "ball", "box"};

struct MiniGridConfig {
  ShownConfig shown{};
  Level level = Level::kEmpty;
  std::int32_t size = 8;  // cells of a side of the grid, walls included
  std::int32_t grid_width = 25;  // cells of a row of the grid, walls included, minigrid's width
  std::int32_t grid_height = 25;  // cells of a column of the grid, walls included, minigrid's height
  bool random_start = false;  // the agent starts anywhere, minigrid's agent_start_pos=None
  std::int32_t agent_start_x = 1;  // column where the agent starts, unless random_start
  std::int32_t agent_start_y = 1;  // row where the agent starts, unless random_start
  std::int32_t agent_start_dir = 0;  // direction of the start: 0 right, 1 down, 2 left, 3 up
  std::int32_t agent_x = 0;  // column where the agent starts; 0: anywhere
  std::int32_t agent_y = 0;  // row where the agent starts; 0: anywhere
  std::int32_t goal_x = 0;  // column of the goal; 0: anywhere
  std::int32_t goal_y = 0;  // row of the goal; 0: anywhere
  std::int32_t num_crossings = 1;  // rivers or walls to cross
  std::int32_t obstacle_type = 0;  // what is in the way: 'lava' or 'wall'
  std::int32_t strip2_row = 2;  // row of the second strip of lava
  std::int32_t min_num_rooms = 6;  // fewest rooms, minigrid's minNumRooms
  std::int32_t max_num_rooms = 6;  // most rooms, minigrid's maxNumRooms
  std::int32_t max_room_size = 10;  // longest side of a room, minigrid's maxRoomSize
  bool random_length = false;  // the hallway's length differs by episode
  std::int32_t n_obstacles = 4;  // balls that move
  std::int32_t num_objs = 2;  // objects, minigrid's numObjs
  std::int32_t room_size = 6;  // cells of a side of a room, walls included
  std::int32_t num_rows = 3;  // rows of rooms
  std::int32_t obj_type = 1;  // what is to be picked up: 'key', 'ball' or 'box'
  bool key_in_box = true;  // keys are in boxes
  bool blocked = true;  // a ball is in front of each locked door
  std::int32_t agent_room_x = 1;  // column of the room where the agent starts
  std::int32_t agent_room_y = 1;  // row of the room where the agent starts
  std::int32_t num_quarters = 4;  // corners of the maze that are open
  std::int32_t num_rooms_visited = 25;  // rooms to pass; 144 steps each are allowed
};

// Tells if a level is a square of `size`.
ROLLOUTS_HD constexpr bool HasSize(Level level) {
  switch (level) {
    case Level::kEmpty: case Level::kDoorKey: case Level::kCrossing: case Level::kLavaGap:
    case Level::kLockedRoom: case Level::kMemory: case Level::kRedBlueDoors:
    case Level::kObstacles: case Level::kFetch: case Level::kGoToDoor: case Level::kGoToObject:
    case Level::kPutNear: return true;
    default: return false;
  }
}
ROLLOUTS_HD constexpr bool IsMaze(Level level) { return level >= Level::kMaze1Dl; }

// Columns and rows of the grid.
ROLLOUTS_HD constexpr std::int32_t WidthOf(const MiniGridConfig& config) {
  switch (config.level) {
    case Level::kRedBlueDoors: return 2 * config.size;
    case Level::kDistShift: case Level::kMultiRoom: return config.grid_width;
    case Level::kFourRooms: case Level::kPlayground: return 19;
    case Level::kUnlock: case Level::kUnlockPickup: case Level::kBlockedUnlockPickup:
    case Level::kMaze1Dl: return 11;
    case Level::kMaze: case Level::kMazeV1: return 16;
    case Level::kKeyCorridor: return (config.room_size - 1) * 3 + 1;
    default: return config.size;
  }
}
ROLLOUTS_HD constexpr std::int32_t HeightOf(const MiniGridConfig& config) {
  switch (config.level) {
    case Level::kRedBlueDoors: return config.size;
    case Level::kDistShift: case Level::kMultiRoom: return config.grid_height;
    case Level::kUnlock: case Level::kUnlockPickup: case Level::kBlockedUnlockPickup:
    case Level::kMaze1Dl: return 6;
    case Level::kKeyCorridor: return (config.room_size - 1) * config.num_rows + 1;
    default: return WidthOf(config);
  }
}

// The time limit of an episode, as in minigrid.
ROLLOUTS_HD constexpr std::int32_t MaxSteps(const MiniGridConfig& config) {
  const std::int32_t area = config.size * config.size;
  if (config.shown.max_steps > 0) return config.shown.max_steps;
  switch (config.level) {
    case Level::kDoorKey: return 10 * area;
    case Level::kFourRooms: case Level::kPlayground: return 100;
    case Level::kDistShift: return 4 * config.grid_width * config.grid_height;
    case Level::kMultiRoom: return 20 * config.max_num_rooms;
    case Level::kLockedRoom: return 10 * config.size;
    case Level::kPutNear: return 5 * config.size;
    case Level::kMemory: case Level::kFetch: case Level::kGoToObject: return 5 * area;
    case Level::kRedBlueDoors: return 20 * area;
    case Level::kUnlock: case Level::kUnlockPickup: return 8 * 36;
    case Level::kBlockedUnlockPickup: return 16 * 36;
    case Level::kKeyCorridor: return 30 * config.room_size * config.room_size;
    case Level::kMaze1Dl: case Level::kMaze: case Level::kMazeV1:
      return 4 * config.num_rooms_visited * 36;
    default: return 4 * area;
  }
}

// Visits the options of levels with rooms.
template <typename Visitor>
void VisitRooms(MiniGridConfig& config, Visitor& visit) {
  const Level level = config.level;
  if (level == Level::kMultiRoom) {
    visit("min_num_rooms", config.min_num_rooms);
    visit("max_num_rooms", config.max_num_rooms);
    visit("max_room_size", config.max_room_size);
  }
  if (level == Level::kKeyCorridor) {
    visit("room_size", config.room_size);
    visit("num_rows", config.num_rows);
    visit.Word("obj_type", config.obj_type, kObjectTypes);
  }
  if (!IsMaze(level)) return;
  visit("key_in_box", config.key_in_box);
  visit("blocked", config.blocked);
  if (level == Level::kMaze1Dl) return;
  visit("agent_room_x", config.agent_room_x);
  visit("agent_room_y", config.agent_room_y);
  visit("num_quarters", config.num_quarters);
  visit("num_rooms_visited", config.num_rooms_visited);
}

// Visits the options that the level uses.
template <typename Visitor>
void VisitLevel(MiniGridConfig& config, Visitor& visit) {
  const Level level = config.level;
  if (HasSize(level)) visit("size", config.size);
  if (level == Level::kEmpty || level == Level::kObstacles || level == Level::kDistShift) {
    visit("random_start", config.random_start);
    visit("agent_start_x", config.agent_start_x);
    visit("agent_start_y", config.agent_start_y);
    visit("agent_start_dir", config.agent_start_dir);
  }
  if (level == Level::kDistShift || level == Level::kMultiRoom) {
    visit("grid_width", config.grid_width);
    visit("grid_height", config.grid_height);
  }
  if (level == Level::kFourRooms) {
    visit("agent_x", config.agent_x);
    visit("agent_y", config.agent_y);
    visit("goal_x", config.goal_x);
    visit("goal_y", config.goal_y);
  }
  if (level == Level::kCrossing) visit("num_crossings", config.num_crossings);
  if (level == Level::kCrossing || level == Level::kLavaGap) {
    visit.Word("obstacle_type", config.obstacle_type, kObstacleTypes);
  }
  if (level == Level::kDistShift) visit("strip2_row", config.strip2_row);
  if (level == Level::kMemory) visit("random_length", config.random_length);
  if (level == Level::kObstacles) visit("n_obstacles", config.n_obstacles);
  if (level == Level::kFetch || level == Level::kGoToObject || level == Level::kPutNear) {
    visit("num_objs", config.num_objs);
  }
  VisitRooms(config, visit);
}
// Least and greatest size of a level that has a size.
struct SizeRange {
  std::int32_t least, most;
};
constexpr SizeRange SizesOf(const MiniGridConfig& config) {
  switch (config.level) {
    case Level::kEmpty: case Level::kObstacles: case Level::kFetch: return {4, kMaxSide};
    case Level::kMemory: return {7, kMaxSide};
    case Level::kRedBlueDoors: return {4, kMaxSide / 2};
    case Level::kLockedRoom: return {15, kMaxSide};
    default: return {5, kMaxSide};
  }
}

template <typename Check>
void CheckRooms(const MiniGridConfig& config, Check& check) {
  check.Between("max_num_rooms", config.max_num_rooms, 1, 8);
  check.Between("min_num_rooms", config.min_num_rooms, 1, config.max_num_rooms);
  check.Between("max_room_size", config.max_room_size, 4, 10);
  check.Between("room_size", config.room_size, 3, 9);
  check.Between("num_rows", config.num_rows, 1, 3);
  check.Between("agent_room_x", config.agent_room_x, 0, 2);
  check.Between("agent_room_y", config.agent_room_y, 0, 2);
  check.Between("num_quarters", config.num_quarters, 1, 4);
  check.Between("num_rooms_visited", config.num_rooms_visited, 1, 1'000'000);
}

// Checks the options that VisitLevel visits.
template <typename Check>
void CheckLevel(const MiniGridConfig& config, Check& check) {
  const Level level = config.level;
  if (HasSize(level)) {
    const SizeRange sizes = SizesOf(config);
    check.Between("size", config.size, sizes.least, sizes.most);
  }
  if (level == Level::kCrossing || level == Level::kMemory) check.Odd("size", config.size);
  if (level == Level::kDistShift || level == Level::kMultiRoom) {
    check.Between("grid_width", config.grid_width, level == Level::kDistShift ? 7 : 10, kMaxSide);
    check.Between("grid_height", config.grid_height, level == Level::kDistShift ? 4 : 10, kMaxSide);
  }
  if (level == Level::kEmpty || level == Level::kObstacles || level == Level::kDistShift) {
    check.Between("agent_start_x", config.agent_start_x, 1, WidthOf(config) - 2);
    check.Between("agent_start_y", config.agent_start_y, 1, HeightOf(config) - 2);
    check.Between("agent_start_dir", config.agent_start_dir, 0, 3);
  }
  if (level == Level::kDistShift) {
    check.Between("strip2_row", config.strip2_row, 1, config.grid_height - 2);
  }
  check.Between("agent_x", config.agent_x, 0, 17);
  check.Between("agent_y", config.agent_y, 0, 17);
  check.Between("goal_x", config.goal_x, 0, 17);
  check.Between("goal_y", config.goal_y, 0, 17);
  check.Between("num_crossings", config.num_crossings, 1, kMaxSide);
  check.Between("n_obstacles", config.n_obstacles, 0, 1000);
  if (level == Level::kFetch || level == Level::kGoToObject || level == Level::kPutNear) {
    // there is room for all objects, and for gaps between them where one is to be put near another
    const bool apart = level == Level::kPutNear;
    const std::int32_t room = (config.size - 2) * (config.size - 2) / (apart ? 8 : 2);
    check.Between("num_objs", config.num_objs, apart ? 2 : 1, room < kMaxItems ? room : kMaxItems);
  }
  CheckRooms(config, check);
}

}  // namespace rollouts::minigrid
