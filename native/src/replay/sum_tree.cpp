// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/sum_tree.h"

#include <algorithm>

namespace rollouts::replay {

void SumTree::Grow(std::int64_t size) {
  if (size <= size_) return;
  // a new level begins with a sum of the present weights
  Flush();
  size_ = size;
  std::int64_t nodes = size;
  std::size_t level = 0;
  do {
    nodes = (nodes + kFanout - 1) / kFanout;
    if (level == levels_.size()) {
      levels_.emplace_back();
      // until now the level below had one node
      if (level > 0) {
        levels_[level].nodes.resize(1);
        levels_[level].nodes[0].value[0] = Sum(levels_[level - 1].nodes[0]);
      }
    }
    levels_[level].nodes.resize(static_cast<std::size_t>(nodes));
    levels_[level].is_changed.resize(static_cast<std::size_t>(nodes));
    ++level;
  } while (nodes > 1);
}

void SumTree::Flush() {
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    Level& level = levels_[i];
    Level* const above = i + 1 < levels_.size() ? &levels_[i + 1] : nullptr;
    // from the leaves up; each changed node once, however many of its children changed
    for (const std::int64_t node : level.changed) {
      level.is_changed[static_cast<std::size_t>(node)] = 0;
      if (!above) continue;
      const std::int64_t parent = node / kFanout;
      above->nodes[static_cast<std::size_t>(parent)].value[node % kFanout] =
          Sum(level.nodes[static_cast<std::size_t>(node)]);
      Mark(*above, parent);
    }
    level.changed.clear();
  }
}

// The child at which the running sum passes `target`; subtracts the sum before it from `target`.
// Has no branch per child, because the path of a random target cannot be predicted.
inline std::int64_t SumTree::ChildOf(const Node& node, double& target) {
  double left = target;
  std::int64_t child = 0;
  bool passes = true;  // all children before this one
  for (std::int64_t k = 0; k < kFanout; ++k) {
    const double value = node.value[k];
    passes = passes && left >= value;
    left -= passes ? value : 0.0;
    child += passes;
  }
  target = left;
  if (child < kFanout) return child;
  // after rounding, a rest may be left after all children: it belongs to the last child with any
  // weight
  do {
    --child;
  } while (child > 0 && node.value[child] <= 0);
  return child;
}

// Goes level by level: the walks do not depend on each other, so their cache misses overlap.
void SumTree::Find(std::span<double> targets, std::span<std::int64_t> indices) const {
  std::fill(indices.begin(), indices.end(), 0);
  for (std::size_t level = levels_.size(); level-- > 0;) {
    const Node* const nodes = levels_[level].nodes.data();
    const Node* const below = level > 0 ? levels_[level - 1].nodes.data() : nullptr;
    for (std::size_t i = 0; i < targets.size(); ++i) {
      indices[i] = indices[i] * kFanout + ChildOf(nodes[indices[i]], targets[i]);
      if (below) __builtin_prefetch(below + indices[i]);
    }
  }
}

void SumTree::Clear() {
  for (Level& level : levels_) {
    std::fill(level.nodes.begin(), level.nodes.end(), Node{});
    std::fill(level.is_changed.begin(), level.is_changed.end(), 0);
    level.changed.clear();
  }
}

}  // namespace rollouts::replay
