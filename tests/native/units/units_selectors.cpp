// SPDX-License-Identifier: Apache-2.0
// replay/: selectors, which pick by weights or by order.
#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "rollouts/replay/selector.h"
#include "rollouts/support/errors.h"
#include "units.h"

namespace rollouts::replay {
namespace {

using units::Contains;
using units::MessageOf;

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
    const auto before = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto least = std::min_element(items.begin(), items.end(), before);
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

TEST(Selector, UniformKeepsPlacesWhereTheLastFillsGaps) {
  auto selector = Filled(Kind::kUniform, {1, 1, 1, 1, 1});
  // slot 4 moves to the place of 1, and 3 to that of 4
  selector->Delete(1);
  selector->Delete(4);
  selector->Delete(3);
  TableRandom random(4);
  std::set<std::int32_t> picked;
  for (int i = 0; i < 100; ++i) picked.insert(selector->Select(random).slot);
  CHECK((picked == std::set<std::int32_t>{0, 2}));
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

}  // namespace
}  // namespace rollouts::replay
