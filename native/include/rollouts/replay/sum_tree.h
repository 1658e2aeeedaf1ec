// SPDX-License-Identifier: Apache-2.0
// Sums over an array of weights, for drawing an index with probability weight / total.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace rollouts::replay {

// A tree with eight children per node, so that a node's children are one cache line and a million
// weights are seven levels deep. A sum is always computed anew from the children, never corrected
// by a difference, so errors do not add up and equal weights give equal sums. Not thread-safe.
//
// Set changes only a weight; Flush computes the sums above all changed weights anew, each sum once,
// however many weights below it changed. Between Set and Flush the sums must not be used.
class SumTree {
 public:
  static constexpr std::int64_t kFanout = 8;

  std::int64_t size() const { return size_; }
  // Makes room for `size` weights, zero where they are new. Never shrinks.
  void Grow(std::int64_t size);
  // weight >= 0 and finite; 0 <= index < size.
  void Set(std::int64_t index, double weight) {
    Level& leaves = levels_[0];
    const std::int64_t node = index / kFanout;
    leaves.nodes[static_cast<std::size_t>(node)].value[index % kFanout] = weight;
    Mark(leaves, node);
  }
  void Flush();
  double Get(std::int64_t index) const {
    return levels_[0].nodes[static_cast<std::size_t>(index / kFanout)].value[index % kFanout];
  }
  // After Flush.
  double total() const { return levels_.empty() ? 0 : Sum(levels_.back().nodes[0]); }
  // Finds, for each target in [0, total), the first index at which the running sum passes the target.
  // Replaces each target by what is left of it at that index. Needs a Flush before, and total > 0.
  // Never returns an index of weight zero.
  void Find(std::span<double> targets, std::span<std::int64_t> indices) const;
  void Clear();

 private:
  struct alignas(64) Node {
    double value[kFanout] = {};
  };
  struct Level {
    std::vector<Node> nodes;
    std::vector<std::int64_t> changed;      // nodes whose sum one level up is outdated, each once
    std::vector<std::uint8_t> is_changed;   // by node
  };
  static double Sum(const Node& node) {
    const double* const v = node.value;
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
  }
  static void Mark(Level& level, std::int64_t node) {
    std::uint8_t& mark = level.is_changed[static_cast<std::size_t>(node)];
    if (mark) return;
    mark = 1;
    level.changed.push_back(node);
  }
  static std::int64_t ChildOf(const Node& node, double& target);

  std::int64_t size_ = 0;
  std::vector<Level> levels_;  // the weights are the first level, a single node is the last
};

}  // namespace rollouts::replay
