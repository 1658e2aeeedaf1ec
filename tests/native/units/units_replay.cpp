// SPDX-License-Identifier: Apache-2.0
// replay/: sums of weights, selectors, rate limiters, columns and chunks.
#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "rollouts/replay/chunk.h"
#include "rollouts/replay/rate_limiter.h"
#include "rollouts/replay/selector.h"
#include "rollouts/replay/sum_tree.h"
#include "rollouts/support/errors.h"
#include "units.h"

namespace rollouts::replay {
namespace {

using units::Contains;
using units::MessageOf;

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

using Kind = SelectorKind;

std::unique_ptr<Selector> Filled(Kind kind, std::vector<double> priorities, double exponent = 1) {
  auto selector = MakeSelector({kind, exponent});
  selector->Grow(static_cast<std::int32_t>(priorities.size()));
  for (std::size_t i = 0; i < priorities.size(); ++i) {
    selector->Insert(static_cast<std::int32_t>(i), priorities[i]);
  }
  return selector;
}

// Slots in the order in which the selector removes them.
std::vector<std::int32_t> Drained(Selector& selector, std::size_t count) {
  TableRandom random(1);
  std::vector<std::int32_t> order;
  for (std::size_t i = 0; i < count; ++i) {
    order.push_back(selector.Select(random).slot);
    selector.Delete(order.back());
  }
  return order;
}

using Slots = std::vector<std::int32_t>;

TEST(Selector, QueuesAndStacksAreInTheOrderOfInserts) {
  CHECK((Drained(*Filled(Kind::kFifo, {5, 1, 9, 3}), 4) == Slots{0, 1, 2, 3}));
  CHECK((Drained(*Filled(Kind::kLifo, {5, 1, 9, 3}), 4) == Slots{3, 2, 1, 0}));
}

TEST(Selector, OrdersSurviveDeletesAtBothEndsAndBetween) {
  for (const Kind kind : {Kind::kFifo, Kind::kLifo}) {
    auto selector = Filled(kind, {0, 0, 0, 0, 0});
    for (const std::int32_t slot : {2, 0, 4}) selector->Delete(slot);
    selector->Insert(2, 0);
    Slots order{1, 3, 2};
    if (kind == Kind::kLifo) std::reverse(order.begin(), order.end());
    CHECK(Drained(*selector, 3) == order);
    // an empty one begins anew
    selector->Insert(4, 0);
    CHECK(Drained(*selector, 1) == Slots{4});
  }
}

TEST(Selector, HeapsAreByPriorityAndThenByAge) {
  CHECK((Drained(*Filled(Kind::kMaxHeap, {5, 1, 9, 5, 9}), 5) == Slots{2, 4, 0, 3, 1}));
  CHECK((Drained(*Filled(Kind::kMinHeap, {5, 1, 9, 5, 1}), 5) == Slots{1, 4, 0, 3, 2}));
}

TEST(Selector, AHeapFollowsUpdatesUpAndDown) {
  auto selector = Filled(Kind::kMaxHeap, {1, 2, 3, 4, 5, 6, 7});
  selector->Update(0, 10);
  selector->Update(6, 0);
  selector->Update(3, 4);  // the same
  CHECK((Drained(*selector, 7) == Slots{0, 5, 4, 3, 2, 1, 6}));
}

TEST(Selector, AHeapEqualsASortedMapUnderRandomCalls) {
  std::mt19937 random(5);
  auto heap = MakeSelector({Kind::kMinHeap, 1});
  heap->Grow(40);
  std::map<std::int32_t, std::pair<double, int>> items;  // priority and age by slot
  TableRandom draws(1);
  int age = 0;
  for (int call = 0; call < 5000; ++call) {
    const auto slot = static_cast<std::int32_t>(random() % 40);
    const double priority = random() % 10;
    const auto item = items.find(slot);
    if (item == items.end()) {
      heap->Insert(slot, priority);
      items[slot] = {priority, age++};
    } else if (random() % 2) {
      heap->Update(slot, priority);
      item->second.first = priority;
    } else {
      heap->Delete(slot);
      items.erase(item);
    }
    if (items.empty()) continue;
    const auto least = std::min_element(items.begin(), items.end(), [](const auto& a, const auto& b) {
      return a.second < b.second;
    });
    CHECK_EQ(heap->Select(draws).slot, least->first);
  }
}

TEST(Selector, UniformPicksOfWhatIsLeftWithEqualProbability) {
  auto selector = Filled(Kind::kUniform, {1, 1, 1, 1});
  selector->Delete(1);
  TableRandom random(4);
  std::map<std::int32_t, int> counts;
  for (int i = 0; i < 3000; ++i) {
    const auto pick = selector->Select(random);
    CHECK_EQ(pick.probability, 1.0 / 3);
    ++counts[pick.slot];
  }
  CHECK_EQ(counts.size(), std::size_t{3});
  CHECK_EQ(counts.count(1), std::size_t{0});
  // five standard deviations: 5 * sqrt(3000 * 2 / 9)
  for (const auto& [slot, count] : counts) CHECK(std::abs(count - 1000) < 130);
}

TEST(Selector, PrioritiesToThePowerAreProbabilities) {
  for (const double exponent : {0.0, 0.5, 1.0, 2.0}) {
    const std::vector<double> priorities{1, 4, 0, 9};
    auto selector = Filled(Kind::kPrioritized, priorities, exponent);
    double total = 0;
    for (const double priority : priorities) total += std::pow(priority, exponent);
    TableRandom random(8);
    std::map<std::int32_t, int> counts;
    constexpr int kDraws = 4000;
    for (int i = 0; i < kDraws; ++i) {
      const auto pick = selector->Select(random);
      const double p = std::pow(priorities[pick.slot], exponent) / total;
      CHECK(std::abs(pick.probability - p) < 1e-12);
      ++counts[pick.slot];
    }
    for (std::size_t i = 0; i < priorities.size(); ++i) {
      const double p = std::pow(priorities[i], exponent) / total;
      const double most = 5 * std::sqrt(kDraws * p * (1 - p)) + 1e-9;
      CHECK(std::abs(counts[static_cast<std::int32_t>(i)] - kDraws * p) <= most);
    }
  }
}

TEST(Selector, ManyPicksAreThoseOfOneAfterTheOther) {
  for (const Kind kind : {Kind::kUniform, Kind::kPrioritized, Kind::kFifo, Kind::kMaxHeap}) {
    auto selector = Filled(kind, {1, 2, 3, 4, 5}, 0.7);
    TableRandom one(3), many(3);
    Selector::Pick picks[40];
    selector->SelectMany(many, picks);
    for (const auto& pick : picks) {
      const auto single = selector->Select(one);
      CHECK_EQ(pick.slot, single.slot);
      CHECK_EQ(pick.probability, single.probability);
    }
    CHECK_EQ(one.draws(), many.draws());
  }
}

TEST(Selector, ItemsWithoutAnyWeightAreAllAlike) {
  auto selector = Filled(Kind::kPrioritized, {0, 0, 0, 0});
  TableRandom random(2);
  std::set<std::int32_t> picked;
  for (int i = 0; i < 200; ++i) {
    const auto pick = selector->Select(random);
    CHECK_EQ(pick.probability, 0.25);
    picked.insert(pick.slot);
  }
  CHECK_EQ(picked.size(), std::size_t{4});
  selector->Update(2, 1e-300);
  CHECK_EQ(selector->Select(random).slot, 2);
  selector->Delete(2);
  for (int i = 0; i < 50; ++i) CHECK(selector->Select(random).slot != 2);
}

TEST(Selector, ASavedOneGoesOnAsItsSource) {
  for (const Kind kind : {Kind::kUniform, Kind::kPrioritized, Kind::kFifo, Kind::kLifo,
                          Kind::kMaxHeap, Kind::kMinHeap}) {
    const std::vector<double> priorities{3, 1, 3, 2, 1, 5};
    auto source = Filled(kind, priorities, 0.5);
    source->Delete(3);
    source->Insert(3, 2);  // now the youngest
    source->Delete(1);
    std::vector<std::uint8_t> bytes;
    StateWriter writer(bytes);
    source->Save(writer);

    auto copy = MakeSelector({kind, 0.5});
    copy->Grow(6);
    copy->Insert(0, 1);  // is forgotten
    StateReader reader(bytes);
    const Slots slots{5, 0, 2, 3, 4};
    copy->Load(reader, slots, std::vector<double>{5, 3, 3, 2, 1});
    CHECK(reader.rest().empty());
    // a new item is the youngest in both
    for (auto* each : {source.get(), copy.get()}) each->Insert(1, 3);
    TableRandom one(9), other(9);
    for (int i = 0; i < 6; ++i) {
      const auto expected = source->Select(one), found = copy->Select(other);
      CHECK_EQ(found.slot, expected.slot);
      CHECK_EQ(found.probability, expected.probability);
      source->Delete(expected.slot), copy->Delete(found.slot);
    }
  }
}

TEST(Selector, AnOrderThatDoesNotFitItsItemsIsRefused) {
  const Slots slots{0, 1, 2};
  const std::vector<double> priorities{1, 2, 3};
  for (const Slots& order : {Slots{0, 1, 1}, Slots{0, 1, 3}, Slots{0, 1, -1}, Slots{0, 1, 7}}) {
    std::vector<std::uint8_t> bytes;
    StateWriter writer(bytes);
    for (const std::int32_t slot : order) writer.Put(slot);
    for (const Kind kind : {Kind::kUniform, Kind::kFifo}) {
      auto selector = MakeSelector({kind, 1});
      selector->Grow(4);
      StateReader reader(bytes);
      const auto said = MessageOf<SpecError>([&] { selector->Load(reader, slots, priorities); });
      CHECK_EQ(said, "has an order of items that does not fit its items");
    }
  }
}

TEST(Selector, AHeapThatIsNoneIsRefused) {
  std::vector<std::uint8_t> bytes;
  StateWriter writer(bytes);
  writer.Put(std::uint64_t{3});
  for (const std::int32_t slot : {0, 1, 2}) writer.Put(slot);
  for (const std::uint64_t number : {0, 1, 2}) writer.Put(number);
  const auto load = [&](std::vector<double> priorities) {
    auto selector = MakeSelector({Kind::kMinHeap, 1});
    selector->Grow(3);
    StateReader reader(bytes);
    selector->Load(reader, Slots{0, 1, 2}, priorities);
  };
  load({1, 2, 2});
  CHECK_EQ(MessageOf<SpecError>([&] { load({2, 1, 3}); }), "has a heap that is none");
}

TEST(Selector, NamesAreReadBackAndOthersRefused) {
  for (const Kind kind : {Kind::kUniform, Kind::kPrioritized, Kind::kFifo, Kind::kLifo,
                          Kind::kMaxHeap, Kind::kMinHeap}) {
    CHECK(SelectorKindOf(NameOf(kind), "x") == kind);
  }
  const auto said = MessageOf<SpecError>([] { SelectorKindOf("oldest", "remover"); });
  CHECK_EQ(said, "remover is 'oldest', expected one of uniform, prioritized, fifo, lifo, max_heap, "
                 "min_heap");
}

TEST(Selector, ExponentsAreFiniteAndNotNegative) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double exponent : {-0.1, infinity, std::nan("")}) {
    const auto said = MessageOf<SpecError>([&] { MakeSelector({Kind::kPrioritized, exponent}); });
    CHECK(Contains(said, "the priority exponent is"));
    MakeSelector({Kind::kFifo, exponent});  // has none
  }
}

TEST(Selector, TheMostThatMayBeSummedIsFinite) {
  const double most = std::numeric_limits<double>::max();
  CHECK_EQ(MostPriority({Kind::kUniform, 1}), most);
  CHECK_EQ(MostPriority({Kind::kPrioritized, 0}), most);
  for (const double exponent : {0.1, 0.6, 1.0, 2.0, 50.0}) {
    const double priority = MostPriority({Kind::kPrioritized, exponent});
    CHECK(std::isfinite(std::pow(priority, exponent) * 0x1p31));
    CHECK(priority > 1);
  }
}

TEST(RateLimiter, AMinSizeAloneDecidesNothingElse) {
  RateLimiter limiter(RateLimiterSpec::MinSize(3));
  for (int i = 0; i < 3; ++i) {
    CHECK(!limiter.CanSample(1));
    CHECK_EQ(limiter.AdmittedSamples(5), 0);
    CHECK(limiter.CanInsert(1));
    limiter.Insert();
  }
  CHECK(limiter.CanSample(1'000'000'000));
  CHECK_EQ(limiter.AdmittedSamples(1'000), 1'000);
  CHECK(limiter.CanInsert(1'000'000'000));
  limiter.Delete();
  CHECK(!limiter.CanSample(1));
}

TEST(RateLimiter, AQueueHoldsWhatWasNotSampled) {
  RateLimiter limiter(RateLimiterSpec::Queue(2));
  CHECK(!limiter.CanSample(1));
  limiter.Insert();
  CHECK(limiter.CanSample(1) && !limiter.CanSample(2));
  limiter.Insert();
  CHECK(!limiter.CanInsert(1));
  CHECK_EQ(limiter.AdmittedSamples(9), 2);
  limiter.Sample(), limiter.Delete();
  CHECK(limiter.CanInsert(1) && !limiter.CanInsert(2));
}

TEST(RateLimiter, ARatioKeepsTheDifferenceWithinItsBounds) {
  for (const double per_insert : {0.5, 1.0, 4.0}) {
    const double filled = 10 * per_insert, width = 2 * std::max(1.0, per_insert);
    RateLimiter limiter(
        RateLimiterSpec::SampleToInsertRatio(per_insert, 10, filled - width, filled + width));
    std::mt19937 random(2);
    int blocked = 0;
    for (int call = 0; call < 3000; ++call) {
      const bool samples = random() % 2;
      const bool can = samples ? limiter.CanSample(1) : limiter.CanInsert(1);
      // never are both blocked
      CHECK(limiter.CanSample(1) || limiter.CanInsert(1));
      blocked += !can;
      if (!can) continue;
      samples ? limiter.Sample() : limiter.Insert();
      if (limiter.size() < 10) continue;
      const double diff = static_cast<double>(limiter.inserts()) * per_insert -
                          static_cast<double>(limiter.samples());
      CHECK(diff >= filled - width && diff <= filled + width);
    }
    CHECK(blocked > 0);
  }
}

TEST(RateLimiter, AdmittedSamplesAreThoseThatCanBeOneByOne) {
  for (const double per_insert : {0.3, 1.0, 2.5}) {
    RateLimiter limiter(RateLimiterSpec::SampleToInsertRatio(per_insert, 1, -3, 20));
    for (int i = 0; i < 6; ++i) limiter.Insert();
    for (const std::int64_t n : {0, 1, 5, 100}) {
      RateLimiter one_by_one = limiter;
      std::int64_t admitted = 0;
      while (admitted < n && one_by_one.CanSample(1)) {
        one_by_one.Sample();
        ++admitted;
      }
      CHECK_EQ(limiter.AdmittedSamples(n), admitted);
    }
  }
}

TEST(RateLimiter, CountsAreLoadedAndForgotten) {
  RateLimiter limiter(RateLimiterSpec::Queue(5));
  limiter.Load(7, 3, 3);
  CHECK_EQ(limiter.size(), 4);
  CHECK_EQ(limiter.inserts() + limiter.samples() + limiter.deletes(), 13);
  CHECK_EQ(limiter.AdmittedSamples(9), 4);
  limiter.Reset();
  CHECK_EQ(limiter.size(), 0);
  CHECK(!limiter.CanSample(1));
}

TEST(RateLimiter, BoundsThatBlockBothSidesForEverAreRefused) {
  const auto said = [](double per_insert, std::int64_t min_size, double low, double high) {
    return MessageOf<SpecError>(
        [&] { RateLimiterSpec::SampleToInsertRatio(per_insert, min_size, low, high); });
  };
  CHECK(Contains(said(1, 0, 0, 9), "min_size is 0, expected 1 or more items"));
  CHECK(Contains(said(0, 1, 0, 9), "samples_per_insert is 0"));
  CHECK(Contains(said(std::nan(""), 1, 0, 9), "samples_per_insert is"));
  CHECK(Contains(said(3, 9, 0, 5.9), "expected at least 6"));
  CHECK(Contains(said(1, 9, 0, std::nan("")), "could both be blocked for ever"));
  CHECK(Contains(said(2, 3, 6.5, 99), "expected at most samples_per_insert * min_size = 6"));
  RateLimiterSpec::SampleToInsertRatio(3, 2, 0, 6);
  CHECK(Contains(MessageOf<SpecError>([] { RateLimiterSpec::Queue(0); }), "queue's size is 0"));
  CHECK(Contains(MessageOf<SpecError>([] { RateLimiterSpec::MinSize(0); }), "min_size is 0"));
}

ColumnSpec Column(std::string name, std::int64_t item_bytes, std::vector<std::int64_t> shape = {},
                  std::int32_t stack = 1) {
  return {.name = std::move(name),
          .dtype = "|u1",
          .item_bytes = item_bytes,
          .shape = std::move(shape),
          .stack = stack};
}

TEST(ChunkLayout, RecordsHaveEveryColumnOnce) {
  const ChunkLayout layout({Column("a", 8), Column("b", 4, {3}), Column("c", 1, {5, 2}, 4)}, 10);
  CHECK(layout.has_stacks);
  // a, b, the newest frame's number and the distances of four, flags
  const std::vector<std::pair<std::int64_t, std::int64_t>> parts{
      {layout.columns[0].offset, 8},          {layout.columns[1].offset, 12},
      {layout.columns[2].newest_offset, 8},   {layout.columns[2].deltas_offset, 4},
      {layout.flags_offset, 1}};
  std::set<std::int64_t> bytes;
  for (const auto& [offset, size] : parts) {
    for (std::int64_t i = 0; i < size; ++i) CHECK(bytes.insert(offset + i).second);
  }
  CHECK(*bytes.rbegin() < layout.row_bytes);
  CHECK_EQ(layout.row_bytes, 40);
  CHECK(!ChunkLayout({Column("a", 8)}, 1).has_stacks);
}

TEST(ChunkLayout, FramesLieBehindTheRecordsWithRoomForAWholeStack) {
  const ChunkLayout layout({Column("x", 1, {7}, 3), Column("y", 2, {5}, 2)}, 4);
  std::int64_t end = layout.row_bytes * 4;
  for (const ChunkLayout::Column& column : layout.columns) {
    CHECK(column.offset >= end);
    CHECK_EQ(column.offset % kCacheLine, 0);
    CHECK_EQ(column.capacity, 4 + column.stack - 1);
    end = column.offset + column.bytes * column.capacity;
  }
  CHECK(end <= layout.chunk_bytes);
  CHECK_EQ(layout.chunk_bytes % kCacheLine, 0);
}

TEST(ChunkLayout, ColumnsThatNoRowHasAreRefused) {
  const auto said = [](std::vector<ColumnSpec> specs, std::int32_t rows = 4) {
    return MessageOf<SpecError>([&] { ChunkLayout(std::move(specs), rows); });
  };
  CHECK_EQ(said({}), "columns is empty, expected at least one");
  CHECK_EQ(said({Column("a", 1), Column("a", 2)}), "column 'a' is there twice");
  CHECK(Contains(said({Column("", 1)}), "a name is not empty"));
  CHECK(Contains(said({Column("@t", 1)}), "has no @ in front"));
  CHECK_EQ(said({Column("a", 1, {3, 0})}), "column 'a' has rows of no bytes");
  CHECK_EQ(said({Column("a", 1, {}, 65)}), "column 'a' has stack 65, expected 1 to 64");
  CHECK(Contains(said({Column("a", 1, {}, 0)}), "has stack 0"));
  CHECK(Contains(said({Column("a", 1)}, 0), "chunk_rows is 0, expected 1 to 1048576"));
  CHECK(Contains(said({Column("a", 1)}, (1 << 20) + 1), "chunk_rows is 1048577"));
}

TEST(ChunkAllocator, ChunksComeBackWithTheirLastReference) {
  const ChunkLayout layout({Column("a", 8)}, 4);
  ChunkAllocator allocator(layout, 0, "");
  Chunk* const chunk = allocator.Take();
  CHECK_EQ(chunk->refs.load(), 1);
  ChunkAllocator::Ref(chunk);
  allocator.Unref(chunk);
  CHECK_EQ(allocator.num_used(), 1);
  ChunkAllocator::Ref(chunk);
  allocator.Unref(chunk, 2);
  CHECK_EQ(allocator.num_used(), 0);
  chunk->num_rows = 3;
  chunk->next = chunk;
  // the same one again, empty
  CHECK(allocator.Take() == chunk);
  CHECK_EQ(chunk->num_rows, 0);
  CHECK(chunk->next == nullptr);
  CHECK_EQ(allocator.num_allocated(), 1);
  CHECK_EQ(chunk->frames.size(), std::size_t{1});
}

TEST(ChunkAllocator, ChunksAreMemoryOfTheirOwn) {
  const ChunkLayout layout({Column("a", 8, {100})}, 8);
  ChunkAllocator allocator(layout, 0, "");
  std::set<std::uint8_t*> data;
  for (int i = 0; i < 2000; ++i) {
    std::uint8_t* const begin = allocator.Take()->data;
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(begin) % kCacheLine, std::uintptr_t{0});
    CHECK_EQ(int{begin[0]} + begin[layout.chunk_bytes - 1], 0);
    begin[0] = begin[layout.chunk_bytes - 1] = 1;
    data.insert(begin);
  }
  const std::uint8_t* before = nullptr;
  for (const std::uint8_t* begin : data) {
    CHECK(before == nullptr || begin - before >= layout.chunk_bytes);
    before = begin;
  }
  CHECK_EQ(data.size(), std::size_t{2000});
}

TEST(ChunkAllocator, ABoundIsKeptAndRaisedForAWhile) {
  const ChunkLayout layout({Column("a", 8)}, 8);
  ChunkAllocator allocator(layout, 3 * layout.chunk_bytes + 1, "");
  std::vector<Chunk*> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(allocator.Take());
  const auto said = MessageOf<StoreFullError>([&] { allocator.Take(); });
  CHECK(Contains(said, "has all of its " + std::to_string(3 * layout.chunk_bytes) + " bytes"));
  allocator.Spare(1);
  taken.push_back(allocator.Take());
  allocator.Spare(-1);
  MessageOf<StoreFullError>([&] { allocator.Take(); });
  allocator.Unref(taken[0]);
  CHECK(allocator.Take() == taken[0]);
  CHECK_EQ(allocator.num_allocated(), 4);
}

TEST(ChunkAllocator, ABoundBelowAChunkIsRefused) {
  const ChunkLayout layout({Column("a", 8)}, 8);
  const auto said =
      MessageOf<SpecError>([&] { ChunkAllocator(layout, layout.chunk_bytes - 1, ""); });
  CHECK(Contains(said, "expected 0 (no bound) or at least one chunk of"));
  ChunkAllocator(layout, layout.chunk_bytes, "").Take();
}

TEST(RowRun, ReferencesReachEveryChunkOfTheRun) {
  const ChunkLayout layout({Column("a", 8)}, 4);
  ChunkAllocator allocator(layout, 0, "");
  Chunk* const first = allocator.Take();
  Chunk* const second = first->next = allocator.Take();
  Chunk* const third = second->next = allocator.Take();
  const RowRun run{.first = first, .num_chunks = 2};
  run.Ref();
  CHECK_EQ(first->refs.load(), 2);
  CHECK_EQ(second->refs.load(), 2);
  CHECK_EQ(third->refs.load(), 1);
  for (Chunk* chunk : {first, second}) allocator.Unref(chunk);
  CHECK_EQ(allocator.num_used(), 3);
  run.Unref(allocator);
  CHECK_EQ(allocator.num_used(), 1);
}

}  // namespace
}  // namespace rollouts::replay
