// SPDX-License-Identifier: Apache-2.0
// Instructions of BabyAI, and whether the agent has followed them
// (minigrid/envs/babyai/core/verifier.py).
#pragma once

#include "rollouts/envs/minigrid/grid.h"
#include "rollouts/envs/minigrid/room_grid.h"
#include "rollouts/envs/minigrid/words.h"

namespace rollouts::babyai {

using minigrid::Cell;
using minigrid::Grid;
using minigrid::Rooms;
using minigrid::Word;

// The side on which an object is, in the agent's room and seen from the agent's start.
enum Where : std::int32_t { kAnywhere, kOnLeft, kOnRight, kInFront, kBehind };

// A description of objects.
struct Description {
  std::int32_t type;   // 0: any
  std::int32_t color;  // -1: any
  std::int32_t where;
};

enum Kind : std::int32_t { kGoTo, kPickUpIt, kOpenIt, kPutNext };

struct Instruction {
  std::int32_t kind;
  std::int32_t strict;       // the task fails with an object that is not described
  Description what, beside;  // the second is for kPutNext alone
};

enum Order : std::int32_t { kOne, kBefore, kAfter };

// Up to two sides of up to two instructions each: parts 0 and 1 are those of the first side.
struct Task {
  static constexpr std::int32_t kMaxParts = 4;
  Instruction parts[kMaxParts];
  std::int32_t order;
  std::int32_t both[2];            // the side has two parts, in any order
  std::int32_t done[kMaxParts];    // whether each part of a side of two is done
  std::int32_t carried[kMaxParts];  // what was carried when a part was last checked
  std::int32_t first_done;         // whether the side that comes first is done
  // by cell: marks of the objects there, since the reset or the last drop
  std::uint8_t places[(minigrid::kMaxCells + 3) / 4 * 4];
};

enum class Verdict : std::int32_t { kGoesOn, kSuccess, kFailure };

// The mark of a part's objects: of those to act on, or (`beside`) of those to put them next to.
ROLLOUTS_HD constexpr std::int32_t MarkOf(std::int32_t part, bool beside) {
  return 2 * part + beside;
}
ROLLOUTS_HD inline bool HasPart(const Task& task, std::int32_t part) {
  const std::int32_t side = part / 2;
  return (side == 0 || task.order != kOne) && (part % 2 == 0 || task.both[side]);
}

// Tells if an object at a cell fits a description.
inline ROLLOUTS_NOINLINE bool Fits(const Grid& grid, const Rooms& rooms, const Description& meant,
                                   std::int32_t at) {
  const Cell cell = grid.cells[at];
  if (minigrid::IsEmpty(cell)) return false;
  if (meant.type && static_cast<std::uint32_t>(meant.type) != minigrid::TypeOf(cell)) return false;
  if (meant.color >= 0 && static_cast<std::uint32_t>(meant.color) != minigrid::ColorOf(cell)) {
    return false;
  }
  if (meant.where == kAnywhere) return true;
  const std::int32_t x = at % grid.width, y = at / grid.width;
  if (!rooms.Contains(rooms.At(grid.x, grid.y), x, y)) return false;
  const std::int32_t dx = minigrid::StepX(grid.dir), dy = minigrid::StepY(grid.dir);
  const std::int32_t ahead = (x - grid.x) * dx + (y - grid.y) * dy;
  const std::int32_t right = (y - grid.y) * dx - (x - grid.x) * dy;
  switch (meant.where) {
    case kOnLeft: return right < 0;
    case kOnRight: return right > 0;
    case kInFront: return ahead > 0;
    default: return ahead < 0;
  }
}
inline ROLLOUTS_NOINLINE std::int32_t CountFits(const Grid& grid, const Rooms& rooms,
                                                const Description& meant) {
  std::int32_t count = 0;
  for (std::int32_t at = 0; at < grid.width * grid.height; ++at) {
    count += Fits(grid, rooms, meant, at);
  }
  return count;
}

// Adds the words of a description, such as "a red ball on your left".
inline ROLLOUTS_NOINLINE void SayMeant(Grid& grid, const Rooms& rooms, const Description& meant) {
  Say(grid, CountFits(grid, rooms, meant) > 1 ? Word::kA : Word::kThe);
  if (meant.color >= 0) Say(grid, minigrid::ColorWord(static_cast<std::uint32_t>(meant.color)));
  Say(grid, minigrid::TypeWord(static_cast<std::uint32_t>(meant.type)));
  switch (meant.where) {
    case kOnLeft: Say(grid, Word::kOn, Word::kYour, Word::kLeft); break;
    case kOnRight: Say(grid, Word::kOn, Word::kYour, Word::kRight); break;
    case kInFront: Say(grid, Word::kIn, Word::kFront, Word::kOf, Word::kYou); break;
    case kBehind: Say(grid, Word::kBehind, Word::kYou); break;
    default: break;
  }
}
inline ROLLOUTS_NOINLINE void SayPart(Grid& grid, const Rooms& rooms, const Instruction& part) {
  switch (part.kind) {
    case kGoTo: Say(grid, Word::kGo, Word::kTo); break;
    case kPickUpIt: Say(grid, Word::kPick, Word::kUp); break;
    case kOpenIt: Say(grid, Word::kOpen); break;
    default: Say(grid, Word::kPut); break;
  }
  SayMeant(grid, rooms, part.what);
  if (part.kind != kPutNext) return;
  Say(grid, Word::kNext, Word::kTo);
  SayMeant(grid, rooms, part.beside);
}
inline ROLLOUTS_NOINLINE void SayTask(Grid& grid, const Rooms& rooms, const Task& task) {
  for (std::int32_t part = 0; part < Task::kMaxParts; ++part) {
    if (!HasPart(task, part)) continue;
    if (part == 2 && task.order == kBefore) Say(grid, Word::kComma, Word::kThen);
    if (part == 2 && task.order == kAfter) Say(grid, Word::kAfter, Word::kYou);
    if (part % 2) Say(grid, Word::kAnd);
    SayPart(grid, rooms, task.parts[part]);
  }
}

// Stores the places of marked objects.
inline ROLLOUTS_NOINLINE void NotePlaces(const Grid& grid, Task& task) {
  for (std::int32_t at = 0; at < grid.width * grid.height; ++at) {
    task.places[at] = static_cast<std::uint8_t>(minigrid::MarksOf(grid.cells[at]));
  }
}
// Marks the objects that the parts describe; nothing has been done yet.
inline ROLLOUTS_NOINLINE void MarkObjects(Grid& grid, const Rooms& rooms, Task& task) {
  for (std::int32_t part = 0; part < Task::kMaxParts; ++part) {
    task.done[part] = task.carried[part] = 0;
    if (!HasPart(task, part)) continue;
    const Instruction& each = task.parts[part];
    for (std::int32_t at = 0; at < grid.width * grid.height; ++at) {
      if (Fits(grid, rooms, each.what, at)) grid.cells[at] |= minigrid::Mark(MarkOf(part, false));
      if (each.kind == kPutNext && Fits(grid, rooms, each.beside, at)) {
        grid.cells[at] |= minigrid::Mark(MarkOf(part, true));
      }
    }
  }
  task.first_done = 0;
  NotePlaces(grid, task);
}

inline ROLLOUTS_NOINLINE Verdict LookAtPart(const Grid& grid, Task& task, std::int32_t part,
                                            std::int32_t action) {
  const Instruction& told = task.parts[part];
  const std::uint32_t mark = 1u << MarkOf(part, false);
  const std::int32_t front = grid.Front();
  const Cell cell = grid.cells[front];
  const bool carries = !minigrid::IsEmpty(grid.carrying);
  const bool carries_it = carries && (minigrid::MarksOf(grid.carrying) & mark);
  const std::int32_t before = task.carried[part];
  switch (told.kind) {
    case kGoTo:
      return task.places[front] & mark ? Verdict::kSuccess : Verdict::kGoesOn;
    case kOpenIt:
      if (action != minigrid::kToggle) return Verdict::kGoesOn;
      if (minigrid::IsOpenDoor(cell) && (minigrid::MarksOf(cell) & mark)) return Verdict::kSuccess;
      return told.strict && minigrid::TypeOf(cell) == minigrid::kDoor ? Verdict::kFailure
                                                                     : Verdict::kGoesOn;
    case kPickUpIt:
      task.carried[part] = carries;
      if (action != minigrid::kPickUp) return Verdict::kGoesOn;
      if (!before && carries_it) return Verdict::kSuccess;
      return told.strict && carries ? Verdict::kFailure : Verdict::kGoesOn;
    default: break;
  }
  task.carried[part] = carries_it;
  if (action != minigrid::kDrop || !before || carries) return Verdict::kGoesOn;
  const std::uint32_t beside = 1u << MarkOf(part, true);
  const std::int32_t around[4] = {front - 1, front + 1, front - grid.width, front + grid.width};
  for (const std::int32_t at : around) {
    // a task from a saved state may drop an object into a wall
    const bool inside = at >= 0 && at < minigrid::kMaxCells;
    if (inside && (task.places[at] & beside)) return Verdict::kSuccess;
  }
  return Verdict::kGoesOn;
}

inline ROLLOUTS_NOINLINE Verdict LookAtSide(const Grid& grid, Task& task, std::int32_t side,
                                            std::int32_t action) {
  const std::int32_t first = 2 * side;
  if (!task.both[side]) return LookAtPart(grid, task, first, action);
  // a failure in one of two parts does not end the task
  for (std::int32_t part = first; part < first + 2; ++part) {
    if (task.done[part]) continue;
    task.done[part] = LookAtPart(grid, task, part, action) == Verdict::kSuccess;
  }
  return task.done[first] && task.done[first + 1] ? Verdict::kSuccess : Verdict::kGoesOn;
}

// Computes the result of a step.
inline ROLLOUTS_NOINLINE Verdict LookAt(const Grid& grid, Task& task, std::int32_t action) {
  if (task.order == kOne) return LookAtSide(grid, task, 0, action);
  const std::int32_t first = task.order == kBefore ? 0 : 1;
  if (!task.first_done) {
    const Verdict verdict = LookAtSide(grid, task, first, action);
    if (verdict != Verdict::kSuccess) return verdict;
    task.first_done = 1;
  }
  return LookAtSide(grid, task, 1 - first, action);
}

}  // namespace rollouts::babyai
