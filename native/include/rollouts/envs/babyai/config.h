// SPDX-License-Identifier: Apache-2.0
// Options of BabyAI: the level, its size, and its observations.
#pragma once

#include "rollouts/envs/minigrid/config.h"

namespace rollouts::babyai {

enum class Level : std::int32_t {
  kGoToRedBallGrey, kGoToRedBall, kGoToObj, kGoToLocal, kGoTo, kGoToImpUnlock, kGoToRedBlueBall,
  kGoToDoor, kGoToObjDoor, kOpen, kOpenRedDoor, kOpenDoor, kOpenTwoDoors, kOpenDoorsOrder, kPickup,
  kUnblockPickup, kPickupDist, kPickupAbove, kPutNextLocal, kPutNext, kUnlock, kUnlockLocal,
  kKeyInBox, kUnlockPickup, kBlockedUnlockPickup, kUnlockToUnlock, kActionObjDoor, kFindObj,
  kKeyCorridor, kOneRoom, kMoveTwoAcross, kAnySentence
};

// Kinds of instructions and of sentences, as bits.
inline constexpr std::int32_t kAllKinds = 15, kGoToAlone = 1, kPickUpAlone = 2;
inline constexpr std::int32_t kAction = 1, kAllSentences = 7;
inline constexpr const char* kSelections[] = {"any", "color", "loc"};

struct BabyAIConfig {
  minigrid::ShownConfig shown{};
  Level level = Level::kGoToRedBall;
  std::int32_t room_size = 8;  // cells of a side of a room, walls included
  std::int32_t num_rows = 3;  // rows of rooms
  std::int32_t num_cols = 3;  // columns of rooms
  std::int32_t num_dists = 0;  // objects, minigrid's num_dists or num_objs
  std::int32_t objs_per_room = 1;  // objects in each of two rooms
  std::int32_t num_doors = 2;  // doors of the agent's room
  std::int32_t select_by = 0;  // what says which door is meant: 'color', 'loc' or 'any' of both
  bool doors_open = false;  // all doors are open at first
  bool start_carrying = false;  // the agent starts with the object that it is to put somewhere
  bool distractors = false;  // there are other objects
  bool strict = false;  // another door or object than the one meant is a failure, minigrid's debug
  bool red_blue = false;  // the doors are red and blue, minigrid's first_color and second_color
  double locked_room_prob = 0.5;  // probability of a locked room
  bool locations = true;  // sentences may say where an object is
  bool unblocking = true;  // objects may be in the way
  bool implicit_unlock = true;  // an object may be in a locked room
  std::int32_t action_kinds = kAllKinds;
  std::int32_t instr_kinds = kAllSentences;
};

// minigrid's time limit where it is the same for all sentences; 0: LimitOf(Task) computes it.
ROLLOUTS_HD constexpr std::int32_t MaxSteps(const BabyAIConfig& config) {
  const std::int32_t area = config.room_size * config.room_size;
  if (config.shown.max_steps > 0) return config.shown.max_steps;
  switch (config.level) {
    case Level::kOpenTwoDoors: case Level::kOpenDoorsOrder: case Level::kFindObj: return 20 * area;
    case Level::kPickupAbove: case Level::kPutNext: return 8 * area;
    case Level::kBlockedUnlockPickup: case Level::kMoveTwoAcross: return 16 * area;
    case Level::kUnlockToUnlock: case Level::kKeyCorridor: return 30 * area;
    default: return 0;
  }
}

// Tells if the rooms of a level may have any size.
ROLLOUTS_HD constexpr bool HasRoomSize(Level level) {
  switch (level) {
    case Level::kGoToRedBallGrey: case Level::kGoToRedBall: case Level::kGoToObj:
    case Level::kGoToLocal: case Level::kGoTo: case Level::kGoToRedBlueBall:
    case Level::kPutNextLocal: case Level::kPutNext: case Level::kFindObj:
    case Level::kKeyCorridor: case Level::kOneRoom: case Level::kMoveTwoAcross: return true;
    default: return false;
  }
}
ROLLOUTS_HD constexpr bool HasNumDists(Level level) {
  switch (level) {
    case Level::kGoToRedBallGrey: case Level::kGoToRedBall: case Level::kGoToLocal:
    case Level::kGoTo: case Level::kGoToRedBlueBall: case Level::kPutNextLocal:
    case Level::kAnySentence: return true;
    default: return false;
  }
}

template <typename Visitor>
void VisitLevel(BabyAIConfig& config, Visitor& visit) {
  const Level level = config.level;
  if (HasRoomSize(level)) visit("room_size", config.room_size);
  if (HasNumDists(level)) visit("num_dists", config.num_dists);
  if (level == Level::kGoTo) visit("doors_open", config.doors_open);
  if (level == Level::kPutNext) visit("start_carrying", config.start_carrying);
  if (level == Level::kPutNext || level == Level::kMoveTwoAcross) {
    visit("objs_per_room", config.objs_per_room);
  }
  if (level == Level::kOpenDoor) visit.Word("select_by", config.select_by, kSelections);
  if (level == Level::kOpenDoorsOrder) visit("num_doors", config.num_doors);
  if (level == Level::kOpenDoor || level == Level::kOpenTwoDoors ||
      level == Level::kOpenDoorsOrder || level == Level::kPickupDist) {
    visit("strict", config.strict);
  }
  if (level == Level::kUnlockLocal || level == Level::kUnlockPickup) {
    visit("distractors", config.distractors);
  }
  if (level != Level::kAnySentence) return;
  visit("locked_room_prob", config.locked_room_prob);
  visit("locations", config.locations);
  visit("unblocking", config.unblocking);
  visit("implicit_unlock", config.implicit_unlock);
}

template <typename Check>
void CheckLevel(const BabyAIConfig& config, Check& check) {
  // within these bounds the grid is not too large, and a room has enough cells for its objects
  const std::int32_t rooms = config.num_rows > config.num_cols ? config.num_rows : config.num_cols;
  const std::int32_t least = config.level == Level::kKeyCorridor ? 3 : 4;
  const std::int32_t inner = (config.room_size - 2) * (config.room_size - 2);
  check.Between("room_size", config.room_size, least, (minigrid::kMaxSide - 1) / rooms + 1);
  // there are 18 different objects
  const std::int32_t limit = config.level == Level::kPutNextLocal ? 12 : 40;
  const std::int32_t room_for = inner / 3 * config.num_rows * config.num_cols;
  check.Between("num_dists", config.num_dists, config.level == Level::kPutNextLocal ? 2 : 0,
                room_for < limit ? room_for : limit);
  if (config.level == Level::kPutNext || config.level == Level::kMoveTwoAcross) {
    check.Between("objs_per_room", config.objs_per_room,
                  config.level == Level::kMoveTwoAcross ? 2 : 1, inner / 3 < 9 ? inner / 3 : 9);
  }
  check.Between("num_doors", config.num_doors, 2, 4);
  check.Probability("locked_room_prob", config.locked_room_prob);
}

}  // namespace rollouts::babyai
