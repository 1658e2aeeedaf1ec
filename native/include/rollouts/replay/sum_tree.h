// SPDX-License-Identifier: Apache-2.0
// Sums over an array of weights, for drawing an index with probability weight / total.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace rollouts::replay {

// A tree of eight children a node, so that a node's children are one cache line and a million
// weights are seven levels deep. A sum is always taken anew from the children, never corrected
// by a difference, so errors do not add up and equal weights give equal sums. Not thread-safe.
class SumTree {
 public:
  static constexpr std::int64_t kFanout = 8;

  std::int64_t size() const { return size_; }
  // Makes room for `size` weights, zero where they are new. Never shrinks.
  void Grow(std::int64_t size);
  // weight >= 0 and finite; 0 <= index < size.
  void Set(std::int64_t index, double weight);
  double Get(std::int64_t index) const {
    return levels_[0][static_cast<std::size_t>(index / kFanout)].value[index % kFanout];
  }
  double total() const { return levels_.empty() ? 0 : Sum(levels_.back()[0]); }
  // The index at which the running sum passes `target`, which is in [0, total). total > 0.
  // Never an index of weight zero.
  std::int64_t Find(double target) const;
  void Clear();

 private:
  struct alignas(64) Node {
    double value[kFanout] = {};
  };
  static double Sum(const Node& node) {
    const double* const v = node.value;
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
  }

  std::int64_t size_ = 0;
  std::vector<std::vector<Node>> levels_;  // the weights first, one node last
};

}  // namespace rollouts::replay
