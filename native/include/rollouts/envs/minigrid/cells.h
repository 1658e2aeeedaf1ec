// SPDX-License-Identifier: Apache-2.0
// The content of a grid's cell, after minigrid 3.2 (minigrid/core/constants.py, world_object.py):
// one number, whose low three bytes appear in observations.
#pragma once

#include "rollouts/core/platform.h"

namespace rollouts::minigrid {

using Cell = std::uint32_t;

// Types, in minigrid's numbering.
inline constexpr std::uint32_t kUnseen = 0, kNothing = 1, kWallType = 2, kDoor = 4, kKey = 5,
                               kBall = 6, kBox = 7, kGoalType = 8, kLavaType = 9, kAgent = 10;
// Colours, in minigrid's numbering.
inline constexpr std::uint32_t kRed = 0, kGreen = 1, kBlue = 2, kPurple = 3, kYellow = 4, kGrey = 5;
inline constexpr std::int32_t kNumColors = 6;
// States of doors.
inline constexpr std::uint32_t kOpen = 0, kClosed = 1, kLocked = 2;

// type | colour << 8 | state << 16 | key in a box << 20 | marks << 24
inline constexpr Cell kShown = 0x0003070f;  // the bits that observations show
inline constexpr std::int32_t kMarkShift = 24;
inline constexpr Cell kMarks = 0xffu << kMarkShift;

ROLLOUTS_HD constexpr Cell MakeCell(std::uint32_t type, std::uint32_t color,
                                    std::uint32_t state = 0) {
  return type | color << 8 | state << 16;
}
ROLLOUTS_HD constexpr std::uint32_t TypeOf(Cell cell) { return cell & 15; }
ROLLOUTS_HD constexpr std::uint32_t ColorOf(Cell cell) { return cell >> 8 & 7; }
ROLLOUTS_HD constexpr std::uint32_t StateOf(Cell cell) { return cell >> 16 & 3; }
// A door with this state in place of its own.
ROLLOUTS_HD constexpr Cell WithState(Cell cell, std::uint32_t state) {
  return (cell & ~(3u << 16)) | state << 16;
}
// A box with a key of a colour in it.
ROLLOUTS_HD constexpr Cell BoxWithKey(std::uint32_t color, std::uint32_t key_color) {
  return MakeCell(kBox, color) | (key_color + 1) << 20;
}
// The cell that an opened box leaves behind.
inline constexpr Cell kEmpty = kNothing;
ROLLOUTS_HD constexpr Cell ContentOf(Cell box) {
  const std::uint32_t held = box >> 20 & 7;
  return held ? MakeCell(kKey, held - 1) : kEmpty;
}

// The marks of a cell's object, a bit for each description that it fits; they move with the object.
ROLLOUTS_HD constexpr std::uint32_t MarksOf(Cell cell) { return cell >> kMarkShift; }
ROLLOUTS_HD constexpr Cell Mark(std::int32_t bit) { return 1u << (kMarkShift + bit); }

inline constexpr Cell kWall = MakeCell(kWallType, kGrey);
inline constexpr Cell kGoal = MakeCell(kGoalType, kGreen);
inline constexpr Cell kLava = MakeCell(kLavaType, kRed);

ROLLOUTS_HD constexpr bool IsEmpty(Cell cell) { return TypeOf(cell) == kNothing; }
ROLLOUTS_HD constexpr bool IsOpenDoor(Cell cell) {
  return TypeOf(cell) == kDoor && StateOf(cell) == kOpen;
}
// Tells if the agent may stand on the cell.
ROLLOUTS_HD constexpr bool CanOverlap(Cell cell) {
  const std::uint32_t type = TypeOf(cell);
  return type == kNothing || type == kGoalType || type == kLavaType || IsOpenDoor(cell);
}
ROLLOUTS_HD constexpr bool CanPickUp(Cell cell) {
  return TypeOf(cell) >= kKey && TypeOf(cell) <= kBox;
}
// Tells if the cell hides the cells behind it.
ROLLOUTS_HD constexpr bool IsOpaque(Cell cell) {
  return TypeOf(cell) == kWallType || (TypeOf(cell) == kDoor && StateOf(cell) != kOpen);
}

// A step in a direction: 0 right, 1 down, 2 left, 3 up.
ROLLOUTS_HD constexpr std::int32_t StepX(std::int32_t dir) { return (dir == 0) - (dir == 2); }
ROLLOUTS_HD constexpr std::int32_t StepY(std::int32_t dir) { return (dir == 1) - (dir == 3); }

}  // namespace rollouts::minigrid
