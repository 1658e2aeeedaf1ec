// SPDX-License-Identifier: Apache-2.0
// Levels about objects in one room: minigrid/envs/fetch.py, gotodoor.py, gotoobject.py, putnear.py.
// Each has a function that draws and one that ends episodes; goal_levels.h explains how grids are
// drawn.
#pragma once

#include "rollouts/envs/minigrid/config.h"
#include "rollouts/envs/minigrid/words.h"

namespace rollouts::minigrid {

// Tells if the agent is next to a cell, not diagonally.
inline ROLLOUTS_NOINLINE bool IsBeside(const Grid& grid, std::int32_t cell) {
  const std::int32_t dx = grid.x - cell % grid.width, dy = grid.y - cell / grid.width;
  return dx * dx + dy * dy == 1;
}

inline ROLLOUTS_NOINLINE bool MakeFetch(const MiniGridConfig& config, Grid& grid, Rng& rng) {
  Enclose(grid, Whole(grid));
  Cell objects[kMaxItems];
  for (std::int32_t i = 0; i < config.num_objs; ++i) {
    const std::uint32_t type = DrawType(rng, /*boxes=*/false);
    objects[i] = MakeCell(type, DrawColor(rng));
    if (Place(grid, objects[i], Whole(grid), rng) < 0) return false;
  }
  if (!PlaceAgent(grid, Whole(grid), rng)) return false;
  const Cell target = objects[Draw(rng, 0, config.num_objs)];
  grid.items[0] = static_cast<std::int32_t>(target);
  const std::int32_t syntax = Draw(rng, 0, 5);
  if (syntax == 4) Say(grid, Word::kYou, Word::kMust);
  if (syntax == 1 || syntax == 3) Say(grid, Word::kGo);
  Say(grid, syntax < 2 ? Word::kGet : Word::kFetch, Word::kA);
  SayObject(grid, target);
  return true;
}
inline ROLLOUTS_NOINLINE void EndFetch(const Grid& grid, StepResult& result) {
  if (IsEmpty(grid.carrying)) return;
  const bool right = grid.carrying == static_cast<Cell>(grid.items[0]);
  result.terminated = true;
  result.reward = right ? grid.Reward() : 0;
}

inline ROLLOUTS_NOINLINE bool MakeGoToDoor(const MiniGridConfig& config, Grid& grid, Rng& rng) {
  const std::int32_t width = Draw(rng, 5, config.size + 1);
  const std::int32_t height = Draw(rng, 5, config.size + 1);
  Enclose(grid, {0, 0, width, height});
  std::int32_t doors[4];
  doors[0] = grid.Index(Draw(rng, 2, width - 2), 0);
  doors[1] = grid.Index(Draw(rng, 2, width - 2), height - 1);
  doors[2] = grid.Index(0, Draw(rng, 2, height - 2));
  doors[3] = grid.Index(width - 1, Draw(rng, 2, height - 2));
  std::int32_t colors[kNumColors];
  Shuffle(colors, kNumColors, rng);
  for (std::int32_t i = 0; i < 4; ++i) {
    grid.cells[doors[i]] = MakeCell(kDoor, static_cast<std::uint32_t>(colors[i]), kClosed);
  }
  if (!PlaceAgent(grid, {0, 0, width, height}, rng)) return false;
  const std::int32_t target = Draw(rng, 0, 4);
  grid.items[0] = doors[target];
  Say(grid, Word::kGo, Word::kTo, Word::kThe);
  SayObject(grid, grid.cells[doors[target]]);
  return true;
}

// Places objects of which no two are alike, at `places`; false: no cell was free.
template <typename Reject>
inline ROLLOUTS_NOINLINE bool PlaceUnlike(Grid& grid, std::int32_t count, Cell* objects,
                                          std::int32_t* places, Rng& rng, Reject&& reject) {
  for (std::int32_t made = 0; made < count;) {
    const std::uint32_t type = DrawType(rng);
    const Cell object = MakeCell(type, DrawColor(rng));
    bool known = false;
    for (std::int32_t i = 0; i < made; ++i) known |= objects[i] == object;
    if (known) continue;
    const std::int32_t at = FindFree(grid, Whole(grid), rng, kManyTries, [&](auto x, auto y) {
      return reject(places, made, x, y);
    });
    if (at < 0) return false;
    grid.cells[at] = object;
    objects[made] = object;
    places[made++] = at;
  }
  return true;
}

inline ROLLOUTS_NOINLINE bool MakeGoToObject(const MiniGridConfig& config, Grid& grid, Rng& rng) {
  Enclose(grid, Whole(grid));
  Cell objects[kMaxItems];
  std::int32_t places[kMaxItems];
  const auto anywhere = [](const std::int32_t*, std::int32_t, std::int32_t, std::int32_t) {
    return false;
  };
  if (!PlaceUnlike(grid, config.num_objs, objects, places, rng, anywhere)) return false;
  if (!PlaceAgent(grid, Whole(grid), rng)) return false;
  const std::int32_t target = Draw(rng, 0, config.num_objs);
  grid.items[0] = places[target];
  Say(grid, Word::kGo, Word::kTo, Word::kThe);
  SayObject(grid, objects[target]);
  return true;
}

// Ends GoToDoor and GoToObject: when the agent declares that it is done, or toggles.
inline ROLLOUTS_NOINLINE void EndGoTo(const Grid& grid, std::int32_t action, StepResult& result) {
  if (action == kToggle) result.terminated = true;
  if (action != kDone) return;
  if (IsBeside(grid, grid.items[0])) result.reward = grid.Reward();
  result.terminated = true;
}

inline ROLLOUTS_NOINLINE bool MakePutNear(const MiniGridConfig& config, Grid& grid, Rng& rng) {
  Enclose(grid, Whole(grid));
  Cell objects[kMaxItems];
  std::int32_t places[kMaxItems];
  const auto near_another = [&](const std::int32_t* others, std::int32_t count, std::int32_t x,
                                std::int32_t y) {
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int32_t dx = x - others[i] % grid.width, dy = y - others[i] / grid.width;
      if (dx * dx <= 1 && dy * dy <= 1) return true;
    }
    return false;
  };
  if (!PlaceUnlike(grid, config.num_objs, objects, places, rng, near_another)) return false;
  if (!PlaceAgent(grid, Whole(grid), rng)) return false;
  const std::int32_t moved = Draw(rng, 0, config.num_objs);
  std::int32_t target = Draw(rng, 0, config.num_objs - 1);
  target += target >= moved;
  grid.items[0] = static_cast<std::int32_t>(objects[moved]);
  grid.items[1] = places[target];
  Say(grid, Word::kPut, Word::kThe);
  SayObject(grid, objects[moved]);
  Say(grid, Word::kNear, Word::kThe);
  SayObject(grid, objects[target]);
  return true;
}
// `carried`: what the agent carried before the step.
inline ROLLOUTS_NOINLINE void EndPutNear(const Grid& grid, std::int32_t action, Cell carried,
                                         StepResult& result) {
  const bool carries = !IsEmpty(grid.carrying);
  if (action == kPickUp && carries && grid.carrying != static_cast<Cell>(grid.items[0])) {
    result.terminated = true;
  }
  if (action != kDrop || IsEmpty(carried)) return;
  const std::int32_t dx = grid.x + StepX(grid.dir) - grid.items[1] % grid.width;
  const std::int32_t dy = grid.y + StepY(grid.dir) - grid.items[1] / grid.width;
  if (!carries && dx * dx <= 1 && dy * dy <= 1) result.reward = grid.Reward();
  result.terminated = true;
}

}  // namespace rollouts::minigrid
