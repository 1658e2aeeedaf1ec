// SPDX-License-Identifier: Apache-2.0
// The items that the rows of an episode give: the arithmetic of n-step, sequences and episodes.
//
// An episode of N steps is N + 1 rows: row t has obs_t and what the action there led to, the last
// one only the final observation. An item is a run of rows; its last row serves its observation
// alone.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rollouts::replay {

struct ItemKind {
  // Handling of steps at an episode's end that fill no whole item.
  enum class AtEnd : std::int32_t {
    kShorten,  // n-step: an item begins at each of them
    kWrite,    // one item of the episode's last `steps`, if it has as many
    kKeep,     // one item of those that are left
  };
  std::int64_t steps = 1;   // n, or the steps of a sequence
  std::int64_t period = 1;  // steps from one beginning to the next
  AtEnd at_end = AtEnd::kShorten;
};

// Rows [begin, end] of one episode; `ended`: nothing comes after `end`.
struct EpisodePart {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool ended = false;
};

// Calls emit(start, rows) for each item that is complete, of those that begin at `start` or later,
// in the order of their beginnings; returns where the next one would begin.
template <typename Emit>
std::int64_t MakeItems(const ItemKind& kind, const EpisodePart& part, std::int64_t start,
                       Emit&& emit) {
  for (; start + kind.steps <= part.end; start += kind.period) {
    emit(start, static_cast<std::int32_t>(kind.steps + 1));
  }
  if (!part.ended) return start;
  const auto rest = [&](std::int64_t first) {
    emit(first, static_cast<std::int32_t>(part.end - first + 1));
  };
  if (kind.at_end == ItemKind::AtEnd::kShorten) {
    for (; start < part.end; ++start) rest(start);
    return start;
  }
  // unless the last item ended there
  const bool covered = start > part.begin && start - kind.period + kind.steps == part.end;
  if (covered) return start;
  if (kind.at_end == ItemKind::AtEnd::kKeep) {
    if (start < part.end) rest(start);
  } else if (part.end - part.begin >= kind.steps) {
    rest(part.end - kind.steps);
  }
  return start;
}

// The number of items of a part that was cut at its end that are shorter than they would have
// been, or left out.
inline std::int64_t NumCutAway(const ItemKind& kind, const EpisodePart& part, std::int64_t start) {
  const std::int64_t left = part.end - start;  // steps from the next item's beginning
  switch (kind.at_end) {
    case ItemKind::AtEnd::kShorten:
      return std::clamp<std::int64_t>(left, 0, kind.steps - 1);
    case ItemKind::AtEnd::kWrite:
      return part.end > part.begin && part.end - part.begin < kind.steps ? 1 : 0;
    case ItemKind::AtEnd::kKeep:
      return left > 0 && left < kind.steps ? 1 : 0;
  }
  return 0;
}

}  // namespace rollouts::replay
