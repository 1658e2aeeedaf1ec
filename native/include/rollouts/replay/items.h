// SPDX-License-Identifier: Apache-2.0
// The items that are made of an episode's rows: the arithmetic of n-step, sequences, episodes and
// hindsight.
//
// An episode of N steps is N + 1 rows: row t has obs_t and the results of the action taken there;
// the last row has only the final observation. An item is a run of rows, whose last row is used for
// its observation alone. An item of hindsight stands for one step, at any place of its run; its
// goal may come from the other rows.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rollouts::replay {

struct ItemKind {
  // Handling of steps at an episode's end that do not fill a whole item.
  enum class AtEnd : std::int32_t {
    kShorten,  // n-step: an item begins at each of these steps
    kWrite,    // one item of the episode's last `steps`, if it has that many
    kKeep,     // one item of the steps that are left
    // hindsight: an item for each step of a piece of at most `steps`, once the piece is whole
    kTails,    // its run is the piece from that step on
    kPieces,   // its run is the whole piece
  };
  std::int64_t steps = 1;   // n, or the steps of a sequence
  std::int64_t period = 1;  // steps from one beginning to the next
  AtEnd at_end = AtEnd::kShorten;

  bool is_hindsight() const { return at_end == AtEnd::kTails || at_end == AtEnd::kPieces; }
};

// Rows [begin, end] of one episode; `ended`: nothing comes after `end`.
struct EpisodePart {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool ended = false;
};

// Calls emit for each step of a whole piece [begin, end].
template <typename Emit>
void MakeOfPiece(const ItemKind& kind, std::int64_t begin, std::int64_t end, Emit&& emit) {
  for (std::int64_t row = begin; row < end; ++row) {
    const bool tail = kind.at_end == ItemKind::AtEnd::kTails;
    const std::int64_t start = tail ? row : begin;
    emit(start, static_cast<std::int32_t>(end - start + 1), static_cast<std::int32_t>(row - start));
  }
}

// Calls emit(start, rows, at) for each complete item that begins at `start` or later, in the order
// of their beginnings; returns where the next item would begin. `at` is the place of the item's
// first step in its run.
template <typename Emit>
std::int64_t MakeItems(const ItemKind& kind, const EpisodePart& part, std::int64_t start,
                       Emit&& emit) {
  if (kind.is_hindsight()) {
    for (; start + kind.steps <= part.end; start += kind.steps) {
      MakeOfPiece(kind, start, start + kind.steps, emit);
    }
    if (part.ended) MakeOfPiece(kind, start, part.end, emit);
    return start;
  }
  for (; start + kind.steps <= part.end; start += kind.period) {
    emit(start, static_cast<std::int32_t>(kind.steps + 1), 0);
  }
  if (!part.ended) return start;
  const auto rest = [&](std::int64_t first) {
    emit(first, static_cast<std::int32_t>(part.end - first + 1), 0);
  };
  if (kind.at_end == ItemKind::AtEnd::kShorten) {
    for (; start < part.end; ++start) rest(start);
    return start;
  }
  // no further item if the last one ended there already
  const bool covered = start > part.begin && start - kind.period + kind.steps == part.end;
  if (covered) return start;
  if (kind.at_end == ItemKind::AtEnd::kKeep) {
    if (start < part.end) rest(start);
  } else if (part.end - part.begin >= kind.steps) {
    rest(part.end - kind.steps);
  }
  return start;
}

// The number of items that are shorter than they would have been, or missing, because the part was
// cut at its end.
inline std::int64_t NumCutAway(const ItemKind& kind, const EpisodePart& part, std::int64_t start) {
  const std::int64_t left = part.end - start;  // steps from the next item's beginning
  switch (kind.at_end) {
    case ItemKind::AtEnd::kShorten:
      return std::clamp<std::int64_t>(left, 0, kind.steps - 1);
    case ItemKind::AtEnd::kWrite:
      return part.end > part.begin && part.end - part.begin < kind.steps ? 1 : 0;
    case ItemKind::AtEnd::kKeep:
      return left > 0 && left < kind.steps ? 1 : 0;
    case ItemKind::AtEnd::kTails:
    case ItemKind::AtEnd::kPieces:
      // each of these items has fewer goals to choose from
      return std::max<std::int64_t>(left, 0);
  }
  return 0;
}

}  // namespace rollouts::replay
