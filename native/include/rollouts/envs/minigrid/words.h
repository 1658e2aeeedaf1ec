// SPDX-License-Identifier: Apache-2.0
// The words of missions, as numbers. Those up to 51 have the numbers that minigrid's
// DictObservationSpaceWrapper gives them (minigrid/wrappers.py).
#pragma once

#include "rollouts/core/platform.h"
#include "rollouts/envs/minigrid/cells.h"

namespace rollouts::minigrid {

// X(constant, text), from number 1 on; 0 is no word.
#define ROLLOUTS_MINIGRID_WORDS(X)                                                             \
  X(Red, "red") X(Green, "green") X(Blue, "blue") X(Yellow, "yellow") X(Purple, "purple")      \
  X(Grey, "grey") X(Unseen, "unseen") X(Empty, "empty") X(Wall, "wall") X(Floor, "floor")      \
  X(Box, "box") X(Key, "key") X(Ball, "ball") X(Door, "door") X(Goal, "goal")                  \
  X(Agent, "agent") X(Lava, "lava") X(Pick, "pick") X(Avoid, "avoid") X(Get, "get")            \
  X(Find, "find") X(Put, "put") X(Use, "use") X(Open, "open") X(Go, "go") X(Fetch, "fetch")    \
  X(Reach, "reach") X(Unlock, "unlock") X(Traverse, "traverse") X(Up, "up") X(The, "the")      \
  X(A, "a") X(At, "at") X(Comma, ",") X(Square, "square") X(And, "and") X(Then, "then")        \
  X(To, "to") X(Of, "of") X(Rooms, "rooms") X(Near, "near") X(Opening, "opening")              \
  X(Must, "must") X(You, "you") X(Matching, "matching") X(End, "end") X(Hallway, "hallway")    \
  X(Object, "object") X(From, "from") X(Room, "room") X(Maze, "maze")                          \
  X(Next, "next") X(After, "after") X(On, "on") X(Your, "your") X(Left, "left")                \
  X(Right, "right") X(In, "in") X(Front, "front") X(Behind, "behind")

enum class Word : std::uint8_t {
  kNone,
#define ROLLOUTS_WORD(NAME, TEXT) k##NAME,
  ROLLOUTS_MINIGRID_WORDS(ROLLOUTS_WORD)
#undef ROLLOUTS_WORD
  kCount
};

// The text of a word; "" for no word.
ROLLOUTS_HD inline const char* TextOf(std::int32_t word) {
  switch (static_cast<Word>(word)) {
#define ROLLOUTS_WORD(NAME, TEXT) \
  case Word::k##NAME: return TEXT;
    ROLLOUTS_MINIGRID_WORDS(ROLLOUTS_WORD)
#undef ROLLOUTS_WORD
    default: return "";
  }
}

ROLLOUTS_HD inline Word ColorWord(std::uint32_t color) {
  switch (color) {
    case kRed: return Word::kRed;
    case kGreen: return Word::kGreen;
    case kBlue: return Word::kBlue;
    case kPurple: return Word::kPurple;
    case kYellow: return Word::kYellow;
    default: return Word::kGrey;
  }
}
ROLLOUTS_HD inline Word TypeWord(std::uint32_t type) {
  switch (type) {
    case kDoor: return Word::kDoor;
    case kKey: return Word::kKey;
    case kBall: return Word::kBall;
    case kBox: return Word::kBox;
    default: return Word::kObject;
  }
}

// Adds words to a mission.
template <typename... Words>
inline ROLLOUTS_NOINLINE void Say(auto& grid, Words... words) {
  (grid.Say(static_cast<std::int32_t>(words)), ...);
}
// Adds an object's words, such as "red ball".
inline ROLLOUTS_NOINLINE void SayObject(auto& grid, Cell object) {
  Say(grid, ColorWord(ColorOf(object)), TypeWord(TypeOf(object)));
}

}  // namespace rollouts::minigrid
