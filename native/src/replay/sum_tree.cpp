// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/sum_tree.h"

#include <algorithm>

namespace rollouts::replay {

void SumTree::Grow(std::int64_t size) {
  if (size <= size_) return;
  size_ = size;
  std::int64_t nodes = size;
  std::size_t level = 0;
  do {
    nodes = (nodes + kFanout - 1) / kFanout;
    if (level == levels_.size()) {
      levels_.emplace_back();
      // the level below had one node until now
      if (level > 0) levels_[level].resize(1), levels_[level][0].value[0] = Sum(levels_[level - 1][0]);
    }
    levels_[level].resize(static_cast<std::size_t>(nodes));
    ++level;
  } while (nodes > 1);
}

void SumTree::Set(std::int64_t index, double weight) {
  double value = weight;
  for (std::vector<Node>& level : levels_) {
    Node& node = level[static_cast<std::size_t>(index / kFanout)];
    node.value[index % kFanout] = value;
    value = Sum(node);
    index /= kFanout;
  }
}

std::int64_t SumTree::Find(double target) const {
  std::int64_t index = 0;
  for (std::size_t level = levels_.size(); level-- > 0;) {
    const Node& node = levels_[level][static_cast<std::size_t>(index)];
    std::int64_t child = 0;
    std::int64_t last = 0;  // that has any weight: rounding may leave a rest behind it
    for (; child < kFanout; ++child) {
      if (node.value[child] <= 0) continue;
      last = child;
      if (target < node.value[child]) break;
      target -= node.value[child];
    }
    index = index * kFanout + last;
  }
  return index;
}

void SumTree::Clear() {
  for (std::vector<Node>& level : levels_) std::fill(level.begin(), level.end(), Node{});
}

}  // namespace rollouts::replay
