// SPDX-License-Identifier: Apache-2.0
// replay/: sums of weights.
#include <algorithm>
#include <random>
#include <vector>

#include "rollouts/replay/sum_tree.h"
#include "units.h"

namespace rollouts::replay {
namespace {

std::int64_t Find(const SumTree& tree, double target) {
  std::int64_t index = -1;
  tree.Find({&target, 1}, {&index, 1});
  return index;
}

TEST(SumTree, FindsWhereTheRunningSumPasses) {
  SumTree tree;
  tree.Grow(5);
  for (int i = 0; i < 5; ++i) tree.Set(i, i);  // 0 1 2 3 4
  tree.Flush();
  CHECK_EQ(tree.total(), 10.0);
  const std::pair<double, std::int64_t> expected[] = {{0, 1},   {0.99, 1}, {1, 2},   {2.99, 2},
                                                      {3, 3},   {5.99, 3}, {6, 4},   {9.99, 4}};
  for (const auto& [target, index] : expected) CHECK_EQ(Find(tree, target), index);
}

TEST(SumTree, EqualsAPlainSumAtEverySize) {
  std::mt19937 random(3);
  for (const std::int64_t size : {1, 7, 8, 9, 63, 64, 65, 513, 5000}) {
    SumTree tree;
    tree.Grow(size);
    std::vector<double> weights(static_cast<std::size_t>(size));
    for (int round = 0; round < 3; ++round) {
      for (std::int64_t i = 0; i < size; ++i) {
        if (random() % 3 == 0) continue;
        // whole numbers: every sum is exact in any order
        weights[i] = random() % 4 == 0 ? 0 : random() % 100;
        tree.Set(i, weights[i]);
        CHECK_EQ(tree.Get(i), weights[i]);
      }
      tree.Flush();
      double sum = 0;
      std::int64_t index = -1;
      std::vector<std::int64_t> of;  // by whole target
      for (std::int64_t i = 0; i < size; ++i) {
        sum += weights[i];
        for (int k = 0; k < weights[i]; ++k) of.push_back(i);
      }
      CHECK_EQ(tree.total(), sum);
      for (std::size_t target = 0; target < of.size(); target += 1 + of.size() / 97) {
        index = Find(tree, static_cast<double>(target) + 0.5);
        CHECK_EQ(index, of[target]);
      }
    }
  }
}

TEST(SumTree, LeavesInTargetsWhatIsLeftOfThem) {
  SumTree tree;
  tree.Grow(20);
  for (int i = 0; i < 20; ++i) tree.Set(i, 2);
  tree.Flush();
  double targets[] = {0.5, 39, 20};
  std::int64_t indices[3];
  tree.Find(targets, indices);
  CHECK_EQ(indices[0], 0);
  CHECK_EQ(indices[1], 19);
  CHECK_EQ(indices[2], 10);
  CHECK_EQ(targets[0], 0.5);
  CHECK_EQ(targets[1], 1.0);
  CHECK_EQ(targets[2], 0.0);
}

TEST(SumTree, GrowingKeepsWeightsAndSums) {
  SumTree tree;
  CHECK_EQ(tree.total(), 0.0);
  double sum = 0;
  for (std::int64_t i = 0; i < 700; ++i) {
    tree.Grow(i + 1);
    CHECK_EQ(tree.Get(i), 0.0);
    tree.Set(i, static_cast<double>(i));
    sum += static_cast<double>(i);
    // some growths find changes that nobody has summed yet
    if (i % 3 == 0) {
      tree.Flush();
      CHECK_EQ(tree.total(), sum);
    }
  }
  tree.Grow(5);  // never shrinks
  CHECK_EQ(tree.size(), 700);
  CHECK_EQ(tree.Get(699), 699.0);
}

TEST(SumTree, NeverFindsAWeightOfZero) {
  SumTree tree;
  tree.Grow(100);
  // sums of these are rounded
  for (int i = 0; i < 100; i += 7) tree.Set(i, 0.1 * (i + 1));
  tree.Flush();
  const double total = tree.total();
  for (int k = 0; k <= 1000; ++k) {
    const double target = std::min(total * k / 1000, std::nextafter(total, 0));
    CHECK(tree.Get(Find(tree, target)) > 0);
  }
}

TEST(SumTree, WhatRoundingLeavesBelongsToTheLastThatHasAWeight) {
  // sums in pairs and differences one by one are rounded differently
  std::mt19937 random(1);
  std::uniform_real_distribution<double> weight(0, 1);
  int last_has_none = 0;
  for (int trial = 0; trial < 5000; ++trial) {
    SumTree tree;
    tree.Grow(8);
    const int filled = 1 + static_cast<int>(random() % 8);
    for (int i = 0; i < filled; ++i) tree.Set(i, weight(random));
    tree.Flush();
    last_has_none += filled < 8;
    const std::int64_t index = Find(tree, std::nextafter(tree.total(), 0));
    CHECK(index < filled);
    CHECK(tree.Get(index) > 0);
  }
  CHECK(last_has_none > 1000);
}

TEST(SumTree, TheSameWeightsGiveTheSameSumsInAnyOrder) {
  SumTree one, other;
  one.Grow(50), other.Grow(10), other.Grow(50);
  for (int i = 0; i < 50; ++i) {
    one.Set(i, 0.1 * i);
    other.Set(49 - i, 1e9), other.Flush();
    other.Set(49 - i, 0.1 * (49 - i));
  }
  one.Flush(), other.Flush();
  CHECK_EQ(one.total(), other.total());
}

TEST(SumTree, ClearingLeavesZeros) {
  SumTree tree;
  tree.Grow(10);
  tree.Set(3, 5), tree.Flush(), tree.Set(4, 6);
  tree.Clear();
  tree.Flush();
  CHECK_EQ(tree.total(), 0.0);
  CHECK_EQ(tree.size(), 10);
  tree.Set(9, 2), tree.Flush();
  CHECK_EQ(Find(tree, 1), 9);
}

}  // namespace
}  // namespace rollouts::replay
