// SPDX-License-Identifier: Apache-2.0
// A grid with an agent, and the rules that all levels share (minigrid/minigrid_env.py).
#pragma once

#include "rollouts/core/env.h"
#include "rollouts/envs/minigrid/cells.h"

namespace rollouts::minigrid {

inline constexpr std::int32_t kMaxSide = 25;  // cells
inline constexpr std::int32_t kMaxCells = kMaxSide * kMaxSide;
inline constexpr std::int32_t kMaxItems = 16;
inline constexpr std::int32_t kMaxWords = 76;  // words of a mission; a multiple of 4
// The most tries to find a free cell; the reference would try for ever.
inline constexpr std::int32_t kManyTries = 10'000;

// Actions, in minigrid's order.
enum Action : std::int32_t { kLeft, kRight, kForward, kPickUp, kDrop, kToggle, kDone };

struct Grid {
  std::int32_t width, height;
  std::int32_t x, y, dir;  // the agent's cell and direction: 0 right, 1 down, 2 left, 3 up
  Cell carrying;           // kEmpty: nothing
  std::int32_t steps, max_steps;
  std::int32_t items[kMaxItems];  // cells that the level uses: its doors, targets, obstacles
  std::int32_t num_items;
  std::uint8_t words[kMaxWords];  // words of the mission; 0 after the last
  std::int32_t num_words;
  Cell cells[kMaxCells];  // row after row

  ROLLOUTS_HD std::int32_t Index(std::int32_t i, std::int32_t j) const { return j * width + i; }
  ROLLOUTS_HD Cell& At(std::int32_t i, std::int32_t j) { return cells[Index(i, j)]; }
  ROLLOUTS_HD Cell At(std::int32_t i, std::int32_t j) const { return cells[Index(i, j)]; }
  ROLLOUTS_HD std::int32_t Front() const { return Index(x + StepX(dir), y + StepY(dir)); }

  // Tells if a cell has neighbours on all sides. In every grid the agent stands only on such cells,
  // so that there is a cell in front of it.
  ROLLOUTS_HD bool IsInner(std::int32_t i, std::int32_t j) const {
    return i > 0 && j > 0 && i < width - 1 && j < height - 1;
  }

  // Appends a word to the mission.
  ROLLOUTS_HD void Say(std::int32_t word) {
    words[num_words++] = static_cast<std::uint8_t>(word);
  }
  // The reward of success.
  ROLLOUTS_HD double Reward() const { return 1 - 0.9 * (static_cast<double>(steps) / max_steps); }
};

// A part of the grid.
struct Area {
  std::int32_t x, y, width, height;
};

// Uniform in {low, ..., high - 1}.
inline ROLLOUTS_NOINLINE std::int32_t Draw(Rng& rng, std::int32_t low, std::int32_t high) {
  return low + static_cast<std::int32_t>(rng.Below(static_cast<std::uint32_t>(high - low)));
}
inline ROLLOUTS_NOINLINE std::uint32_t DrawColor(Rng& rng) { return rng.Below(kNumColors); }
// Draws a key, a ball or a box; without boxes a key or a ball.
ROLLOUTS_HD inline std::uint32_t DrawType(Rng& rng, bool boxes = true) {
  return kKey + rng.Below(boxes ? 3 : 2);
}

// Puts the numbers 0 to count - 1 in random order.
inline ROLLOUTS_NOINLINE void Shuffle(std::int32_t* order, std::int32_t count, Rng& rng) {
  for (std::int32_t i = 0; i < count; ++i) order[i] = i;
  for (std::int32_t i = 0; i + 1 < count; ++i) {
    const std::int32_t other = Draw(rng, i, count);
    const std::int32_t kept = order[i];
    order[i] = order[other];
    order[other] = kept;
  }
}

// Makes the grid empty, without an agent.
inline ROLLOUTS_NOINLINE void Clear(Grid& grid, std::int32_t width, std::int32_t height) {
  grid.width = width;
  grid.height = height;
  grid.x = grid.y = -1;
  grid.dir = 0;
  grid.carrying = kEmpty;
  grid.steps = 0;
  grid.num_items = 0;
  grid.num_words = 0;
  for (std::int32_t i = 0; i < kMaxItems; ++i) grid.items[i] = 0;
  for (std::int32_t i = 0; i < kMaxWords; ++i) grid.words[i] = 0;
  for (std::int32_t i = 0; i < width * height; ++i) grid.cells[i] = kEmpty;
}

inline ROLLOUTS_NOINLINE void Row(Grid& grid, std::int32_t x, std::int32_t y, std::int32_t length,
                                  Cell cell = kWall) {
  for (std::int32_t i = 0; i < length; ++i) grid.At(x + i, y) = cell;
}
inline ROLLOUTS_NOINLINE void Column(Grid& grid, std::int32_t x, std::int32_t y,
                                     std::int32_t length, Cell cell = kWall) {
  for (std::int32_t j = 0; j < length; ++j) grid.At(x, y + j) = cell;
}
// Puts walls around an area.
inline ROLLOUTS_NOINLINE void Enclose(Grid& grid, const Area& area) {
  Row(grid, area.x, area.y, area.width);
  Row(grid, area.x, area.y + area.height - 1, area.width);
  Column(grid, area.x, area.y, area.height);
  Column(grid, area.x + area.width - 1, area.y, area.height);
}
ROLLOUTS_HD inline Area Whole(const Grid& grid) { return {0, 0, grid.width, grid.height}; }

// Draws a free cell of an area that `reject(x, y)` does not reject, all with equal probability; -1:
// none was found.
template <typename Reject>
inline ROLLOUTS_NOINLINE std::int32_t FindFree(const Grid& grid, const Area& area, Rng& rng,
                                               std::int32_t tries, Reject&& reject) {
  const std::int32_t left = area.x > 0 ? area.x : 0;
  const std::int32_t top = area.y > 0 ? area.y : 0;
  const std::int32_t right = left + area.width < grid.width ? left + area.width : grid.width;
  const std::int32_t bottom = top + area.height < grid.height ? top + area.height : grid.height;
  if (right <= left || bottom <= top) return -1;
  for (std::int32_t i = 0; i < tries; ++i) {
    const std::int32_t x = Draw(rng, left, right);
    const std::int32_t y = Draw(rng, top, bottom);
    if (!IsEmpty(grid.At(x, y)) || (x == grid.x && y == grid.y) || reject(x, y)) continue;
    return grid.Index(x, y);
  }
  return -1;
}
inline ROLLOUTS_NOINLINE std::int32_t FindFree(const Grid& grid, const Area& area, Rng& rng) {
  return FindFree(grid, area, rng, kManyTries, [](std::int32_t, std::int32_t) { return false; });
}

// Puts an object on a free cell. Returns the cell, or -1.
inline ROLLOUTS_NOINLINE std::int32_t Place(Grid& grid, Cell object, const Area& area, Rng& rng) {
  const std::int32_t at = FindFree(grid, area, rng);
  if (at >= 0) grid.cells[at] = object;
  return at;
}

// Puts the agent on a free cell, in any direction. False: there is none.
inline ROLLOUTS_NOINLINE bool PlaceAgent(Grid& grid, const Area& area, Rng& rng,
                                         std::int32_t tries = kManyTries) {
  grid.x = grid.y = -1;
  const std::int32_t at =
      FindFree(grid, area, rng, tries, [](std::int32_t, std::int32_t) { return false; });
  if (at < 0) return false;
  grid.x = at % grid.width;
  grid.y = at / grid.width;
  grid.dir = Draw(rng, 0, 4);
  return true;
}

// Opens, closes or empties the cell in front of the agent.
inline ROLLOUTS_NOINLINE void Toggle(Grid& grid, Cell& front) {
  if (TypeOf(front) == kBox) {
    front = ContentOf(front);
    return;
  }
  if (TypeOf(front) != kDoor) return;
  if (StateOf(front) != kLocked) {
    front = WithState(front, StateOf(front) == kOpen ? kClosed : kOpen);
  } else if (TypeOf(grid.carrying) == kKey && ColorOf(grid.carrying) == ColorOf(front)) {
    front = WithState(front, kOpen);
  }
}

// Makes a step by the rules that all levels share.
inline ROLLOUTS_NOINLINE StepResult DoAction(Grid& grid, std::int32_t action) {
  ++grid.steps;
  Cell& front = grid.cells[grid.Front()];
  StepResult result;
  switch (action) {
    case kLeft: grid.dir = (grid.dir + 3) & 3; break;
    case kRight: grid.dir = (grid.dir + 1) & 3; break;
    case kForward:
      if (!CanOverlap(front)) break;
      if (!grid.IsInner(grid.x + StepX(grid.dir), grid.y + StepY(grid.dir))) break;
      if (TypeOf(front) == kGoalType) result = StepResult::Of(grid.Reward(), true);
      if (TypeOf(front) == kLavaType) result.terminated = true;
      grid.x += StepX(grid.dir);
      grid.y += StepY(grid.dir);
      break;
    case kPickUp:
      if (!CanPickUp(front) || !IsEmpty(grid.carrying)) break;
      grid.carrying = front;
      front = kEmpty;
      break;
    case kDrop:
      if (!IsEmpty(front) || IsEmpty(grid.carrying)) break;
      front = grid.carrying;
      grid.carrying = kEmpty;
      break;
    case kToggle: Toggle(grid, front); break;
    default: break;
  }
  result.cuts_off = grid.steps >= grid.max_steps;
  return result;
}

}  // namespace rollouts::minigrid
