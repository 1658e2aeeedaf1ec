// SPDX-License-Identifier: Apache-2.0
// Reward, lives and end of games, read from the console's memory after each frame, equal to
// ale-py's: a game keeps these numbers for its own screen. Where a game keeps them was found by
// comparing with ale-py from outside.
#pragma once

#include "rollouts/atari2600/console.h"

namespace rollouts::atari2600 {

// Ways to read a number from a byte.
enum class Reading : U8 {
  kByte,
  kBcd,           // two decimal digits, each of which may be above 9
  kLow,           // the four low bits
  kHigh,          // the four high bits
  kLowThree,      // the three low bits
  kLowTwo,        // the two low bits
  kLowest,        // the lowest bit
  kBitSix,        // 0 or 1
  kMiddleThree,   // bits 4, 5 and 6
  kDigit,         // the four low bits; 10 is a blank and counts as 0
  kHighDigit,     // the same for the four high bits
  kDigits,        // two decimal digits with blanks
  kPicture,       // the address of a digit's picture, of 8 bytes; 0x80 is a blank
  kDigitPicture,  // the same, but 0 if it is none of the ten digits
  kKnockout,      // two decimal digits; 0xc0 is 100
  kBitCount,      // how many of the three low bits are set
  kVines,         // Pitfall's lives
  kPlanes,        // River Raid's lives
};

enum class Relation : U8 { kNever, kIs, kIsNot, kAtLeast };

// A part of a score. Addresses are 0x80 to 0xff.
struct Points {
  U8 address = 0;
  Reading reading = Reading::kByte;
  I32 weight = 0;
};

struct Lives {
  U8 address = 0;  // 0: not in the table
  Reading reading = Reading::kByte;
  I32 more = 0;  // added to the number in memory
};

// Compares a number in memory. Tests form groups: it is enough that all of one group hold.
struct Test {
  U8 address = 0;
  Reading reading = Reading::kByte;
  Relation relation = Relation::kNever;
  U8 value = 0;
  bool or_else = false;  // begins another group
};

// Rules that no row of the table can express: the functions below implement them.
enum class Special : U8 {
  kNone, kBeamRider, kBreakout, kChopperCommand, kDemonAttack, kEnduro, kGravitar, kQbert,
  kRiverRaid, kStarGunner, kTennis, kVideoCheckers, kVideoPinball, kWizardOfWor,
};

struct Rules {
  static constexpr I32 kMost = 0x7fffffff;

  const char* name;  // Game::name
  Special special = Special::kNone;
  I32 first_score = 0;  // before the first frame
  I32 first_lives = 0;
  Points score[6] = {};  // their sum is the score; a weight of 0 ends the list
  I32 wrap = 0;          // added to a reward below 0: the score has begun anew
  I32 least = -kMost;    // reward
  I32 most = kMost;
  bool keeps_score = false;  // the frame that ends the game does not change the score
  Lives lives = {};
  Test lives_when = {};  // with a test: lives stay unchanged where it fails
  Test over[4] = {};     // a test with kNever ends the list
};

// State that is kept from frame to frame. Plain data.
struct RulesState {
  I32 reward = 0;  // the last frame's
  I32 score = 0;
  I32 lives = 0;
  I32 seen = 0;  // a byte of the frame before, or points
  U8 over = 0;
  U8 started = 0;
  U8 padding[2] = {};
};

inline ROLLOUTS_HD U8 ByteAt(const U8* ram, U8 address) { return ram[address & 0x7f]; }

inline ROLLOUTS_HD I32 WithoutBlank(I32 digit) { return digit == 10 ? 0 : digit; }

inline ROLLOUTS_HD I32 ReadByte(U8 byte, Reading reading) {
  const I32 low = byte & 15, high = byte >> 4;
  const I32 bcd = high * 10 + low;
  switch (reading) {
    case Reading::kByte: return byte;
    case Reading::kBcd: return bcd;
    case Reading::kLow: return low;
    case Reading::kHigh: return high;
    case Reading::kLowThree: return byte & 7;
    case Reading::kLowTwo: return byte & 3;
    case Reading::kLowest: return byte & 1;
    case Reading::kBitSix: return (byte >> 6) & 1;
    case Reading::kMiddleThree: return high & 7;
    case Reading::kDigit: return WithoutBlank(low);
    case Reading::kHighDigit: return WithoutBlank(high);
    case Reading::kDigits: return WithoutBlank(high) * 10 + WithoutBlank(low);
    case Reading::kPicture: return byte == 0x80 ? 0 : byte >> 3;
    case Reading::kDigitPicture: return byte % 8 == 0 && byte <= 0x48 ? byte >> 3 : 0;
    case Reading::kKnockout: return byte == 0xc0 ? 100 : bcd;
    case Reading::kBitCount: return (byte & 1) + ((byte >> 1) & 1) + ((byte >> 2) & 1);
    case Reading::kVines: return high == 10 ? 3 : high == 8 ? 2 : 1;
    case Reading::kPlanes: return byte == 0x58 ? 4 : byte == 0x59 ? 1 : (byte >> 3) + 1;
  }
  return 0;
}

inline ROLLOUTS_HD bool Holds(const Test& test, const U8* ram) {
  const I32 number = ReadByte(ByteAt(ram, test.address), test.reading);
  switch (test.relation) {
    case Relation::kNever: return false;
    case Relation::kIs: return number == test.value;
    case Relation::kIsNot: return number != test.value;
    case Relation::kAtLeast: return number >= test.value;
  }
  return false;
}

inline ROLLOUTS_HD bool AnyGroupHolds(const Test (&tests)[4], const U8* ram) {
  bool group = false;
  for (I32 i = 0; i < 4 && tests[i].relation != Relation::kNever; ++i) {
    const bool begins = i == 0 || tests[i].or_else;
    if (begins && group) return true;
    group = (begins || group) && Holds(tests[i], ram);
  }
  return group;
}

// Tells if the game is over. Before some games begin, their memory looks like that of a game that
// is over.
inline ROLLOUTS_HD bool IsOver(const Rules& rules, const U8* ram, RulesState& state) {
  const bool over = AnyGroupHolds(rules.over, ram);
  switch (rules.special) {
    case Special::kBreakout:
      state.started |= ByteAt(ram, 0xb9) == 5;
      return state.started && over;
    case Special::kChopperCommand:
      state.started |= ByteAt(ram, 0xc2) & 1;
      return state.started && over;
    case Special::kQbert: return over || (state.seen == -1 && ByteAt(ram, 0x88) == 2);
    case Special::kRiverRaid: return over && state.seen == 0x59;
    default: return over;
  }
}

inline ROLLOUTS_HD I32 ReadScore(const Rules& rules, const U8* ram) {
  // before the first game, the score's bytes show a title
  if (rules.special == Special::kDemonAttack && ByteAt(ram, 0x81) == 0xab &&
      ByteAt(ram, 0x83) == 0xcd && ByteAt(ram, 0x85) == 0xea) {
    return 0;
  }
  if (rules.special == Special::kEnduro) {
    // counts the cars passed, of 200 on the first day and 300 on every other day
    const I32 day = ByteAt(ram, 0xad);
    const I32 left = ReadByte(ByteAt(ram, 0xac), Reading::kBcd) * 100 +
                     ReadByte(ByteAt(ram, 0xab), Reading::kBcd);
    return day == 0 ? 0 : day * 300 - 100 - left;
  }
  I32 score = 0;
  for (const Points& part : rules.score) {
    if (part.weight == 0) break;
    score += part.weight * ReadByte(ByteAt(ram, part.address), part.reading);
  }
  if (rules.special == Special::kWizardOfWor && score >= 800000) score -= 800000;
  return score;
}

// Counts games won and lost, and points in frames without a game won or lost.
inline ROLLOUTS_HD void FollowTennis(const U8* ram, RulesState& state) {
  const I32 points = ByteAt(ram, 0xc5) - ByteAt(ram, 0xc6);
  const I32 won = ByteAt(ram, 0xc7), lost = ByteAt(ram, 0xc8);
  const I32 ahead = won - lost;
  state.reward = ahead != state.score ? ahead - state.score : points - state.seen;
  state.score = ahead;
  state.seen = points;
  state.over = won == 7 || lost == 7 || (won >= 6 && ahead >= 2) || (lost >= 6 && ahead <= -2);
}

// A player without pieces has lost; `seen` is 1 where white is the first player's colour, -1 where
// it is black. The squares are four groups of eight bytes, with one byte between two groups.
inline ROLLOUTS_HD void FollowCheckers(const U8* ram, RulesState& state) {
  bool has_white = false, has_black = false;
  for (I32 address = 0x80; address < 0xa3; ++address) {
    if ((address - 0x80) % 9 == 8) continue;
    const U8 piece = ram[address & 0x7f];
    has_white |= piece == 0x10 || piece == 0x20;
    has_black |= piece == 0x90 || piece == 0xa0;
  }
  state.over = !has_white || !has_black;
  state.reward = !state.over ? 0 : has_white ? state.seen : -state.seen;
}

inline ROLLOUTS_HD void FollowLives(const Rules& rules, const U8* ram, RulesState& state) {
  switch (rules.special) {
    case Special::kBeamRider: {
      // a lost life counts once the ship has gone
      const I32 lives = ByteAt(ram, 0x85) + 1;
      if (lives != state.lives - 1 || ByteAt(ram, 0x8c) == 1) state.lives = lives;
      return;
    }
    case Special::kGravitar:
      state.lives = ByteAt(ram, 0x81) == 0 ? 6 : ByteAt(ram, 0x84) + 1;
      return;
    case Special::kQbert: {
      const I32 left = static_cast<signed char>(ByteAt(ram, 0x88));
      if (left == state.seen - 1) --state.lives;
      state.seen = left;
      return;
    }
    case Special::kStarGunner:
      state.started |= ByteAt(ram, 0x87) == 5;
      state.lives = state.started ? ByteAt(ram, 0x87) & 15 : 5;
      return;
    case Special::kVideoPinball:
      state.lives = 4 + (ByteAt(ram, 0xa8) & 1) - (ByteAt(ram, 0x99) & 7);
      return;
    case Special::kRiverRaid: state.seen = ByteAt(ram, 0xc0); break;
    default: break;
  }
  const Lives& lives = rules.lives;
  const bool stay = rules.lives_when.relation != Relation::kNever && !Holds(rules.lives_when, ram);
  if (lives.address == 0 || stay) return;
  state.lives = ReadByte(ByteAt(ram, lives.address), lives.reading) + lives.more;
}

// The state at the beginning of a game in a mode, before its first frame; a negative mode is the
// game's default.
inline ROLLOUTS_HD RulesState StartRules(const Rules& rules, I32 mode) {
  RulesState state;
  state.score = rules.first_score;
  state.lives = rules.first_lives;
  // the values with which the functions for these games begin
  if (rules.special == Special::kQbert) state.seen = 2;
  if (rules.special == Special::kRiverRaid) state.seen = 0x58;
  if (rules.special == Special::kVideoCheckers) state.seen = mode > 10 ? -1 : 1;
  return state;
}

// Reads the (128,) bytes of memory; to be called after each frame.
inline ROLLOUTS_HD void StepRules(const Rules& rules, const U8* ram, RulesState& state) {
  if (rules.special == Special::kTennis) return FollowTennis(ram, state);
  if (rules.special == Special::kVideoCheckers) return FollowCheckers(ram, state);
  state.over = IsOver(rules, ram, state);
  state.reward = 0;
  if (!(rules.keeps_score && state.over)) {
    const I32 score = ReadScore(rules, ram);
    I32 reward = score - state.score;
    if (reward < 0) reward += rules.wrap;
    if (reward < rules.least) reward = rules.least;
    if (reward > rules.most) reward = rules.most;
    state.reward = reward;
    state.score = score;
  }
  FollowLives(rules, ram, state);
}

// No lives are left in a game that is over.
inline ROLLOUTS_HD I32 LivesOf(const RulesState& state) { return state.over ? 0 : state.lives; }

namespace rules_table {
using enum Reading;
using enum Relation;
inline constexpr Rules kRules[] = {
#include "rollouts/atari2600/rules.inc"
};
}  // namespace rules_table

// The rules of a game; null where this library has none.
inline const Rules* FindRules(const char* name) {
  for (const Rules& rules : rules_table::kRules) {
    const char* ours = rules.name;
    const char* theirs = name;
    while (*ours && *ours == *theirs) ++ours, ++theirs;
    if (*ours == *theirs) return &rules;
  }
  return nullptr;
}

}  // namespace rollouts::atari2600
