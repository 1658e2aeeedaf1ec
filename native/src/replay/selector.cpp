// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/selector.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "rollouts/replay/sum_tree.h"
#include "rollouts/support/errors.h"

namespace rollouts::replay {
namespace {

constexpr std::array<const char*, 6> kNames{"uniform", "prioritized", "fifo",
                                            "lifo",    "max_heap",    "min_heap"};

// Saves slots in a selector's own order; the table saves how many there are.
void SaveOrder(StateWriter& writer, const std::vector<std::int32_t>& order) {
  for (const std::int32_t slot : order) writer.Put(slot);
}

// Loads an order that must have every slot exactly once.
std::vector<std::int32_t> LoadOrder(StateReader& reader, std::span<const std::int32_t> slots,
                                    std::size_t capacity) {
  std::vector<std::uint8_t> expected(capacity, 0);
  for (const std::int32_t slot : slots) expected[static_cast<std::size_t>(slot)] = 1;
  std::vector<std::int32_t> order(slots.size());
  for (std::int32_t& slot : order) {
    slot = reader.Get<std::int32_t>();
    if (slot < 0 || static_cast<std::size_t>(slot) >= capacity || !expected[slot]) {
      throw SpecError("has an order of items that does not fit its items");
    }
    // a second occurrence is refused
    expected[slot] = 0;
  }
  return order;
}

// Draws with equal probability; keeps all slots in one array.
class Uniform final : public Selector {
 public:
  void Grow(std::int32_t capacity) override { place_.resize(static_cast<std::size_t>(capacity)); }
  void Insert(std::int32_t slot, double) override {
    place_[slot] = static_cast<std::int32_t>(slots_.size());
    slots_.push_back(slot);
  }
  void Delete(std::int32_t slot) override {
    const std::int32_t place = place_[slot];
    // the last slot fills the gap: a random pick needs no order
    slots_[place] = slots_.back();
    place_[slots_[place]] = place;
    slots_.pop_back();
  }
  void Update(std::int32_t, double) override {}
  Pick Select(TableRandom& random) override {
    const auto size = static_cast<std::int64_t>(slots_.size());
    return {slots_[static_cast<std::size_t>(random.Below(size))], 1.0 / static_cast<double>(size)};
  }
  void Clear() override { slots_.clear(); }
  void Save(StateWriter& writer) const override { SaveOrder(writer, slots_); }
  void Load(StateReader& reader, std::span<const std::int32_t> slots,
            std::span<const double>) override {
    Clear();
    // inserted in the saved order, because a random number picks by place
    for (const std::int32_t slot : LoadOrder(reader, slots, place_.size())) Insert(slot, 0);
  }

 private:
  std::vector<std::int32_t> slots_;
  std::vector<std::int32_t> place_;  // a slot's in slots_
};

// Draws slots by weight; `uniform_` keeps them too, for when no weight is above 0.
class Prioritized final : public Selector {
 public:
  explicit Prioritized(double exponent) : exponent_(exponent) {}
  void Grow(std::int32_t capacity) override {
    tree_.Grow(capacity);
    uniform_.Grow(capacity);
  }
  void Insert(std::int32_t slot, double priority) override {
    tree_.Set(slot, Weight(priority));
    uniform_.Insert(slot, priority);
  }
  void Delete(std::int32_t slot) override {
    tree_.Set(slot, 0);
    uniform_.Delete(slot);
  }
  // Sets only the slot's weight: the sums above it are computed at the next sample.
  void Update(std::int32_t slot, double priority) override { tree_.Set(slot, Weight(priority)); }
  Pick Select(TableRandom& random) override {
    Pick pick;
    SelectMany(random, {&pick, 1});
    return pick;
  }
  void SelectMany(TableRandom& random, std::span<Pick> picks) override {
    // weights that changed since the last sample are summed only now, each branch once
    tree_.Flush();
    const double total = tree_.total();
    // no item has any weight, so all are drawn alike
    if (!(total > 0)) return uniform_.SelectMany(random, picks);
    targets_.resize(picks.size());
    slots_.resize(picks.size());
    for (double& target : targets_) target = random.Uniform() * total;
    tree_.Find(targets_, slots_);
    for (std::size_t i = 0; i < picks.size(); ++i) {
      picks[i] = {static_cast<std::int32_t>(slots_[i]), tree_.Get(slots_[i]) / total};
    }
  }
  void Clear() override {
    tree_.Clear();
    uniform_.Clear();
  }
  // Does not save weights, which follow from the priorities.
  void Save(StateWriter& writer) const override { uniform_.Save(writer); }
  void Load(StateReader& reader, std::span<const std::int32_t> slots,
            std::span<const double> priorities) override {
    Clear();
    uniform_.Load(reader, slots, priorities);
    for (std::size_t i = 0; i < slots.size(); ++i) tree_.Set(slots[i], Weight(priorities[i]));
  }

 private:
  double Weight(double priority) {
    if (exponent_ == 1.0) return priority;
    // new items usually come with the same priority as the item before, so its weight is kept
    if (priority != last_priority_) {
      last_priority_ = priority;
      // 0 ** 0 is 1, so that with exponent 0 all items are alike
      last_weight_ = std::pow(priority, exponent_);
    }
    return last_weight_;
  }

  const double exponent_;
  double last_priority_ = 1.0;
  double last_weight_ = 1.0;  // last_priority_ ** exponent_
  SumTree tree_;
  Uniform uniform_;
  std::vector<double> targets_;      // scratch of SelectMany, kept for its memory
  std::vector<std::int64_t> slots_;
};

// Keeps slots as a list in the order of their inserts.
class Ordered final : public Selector {
 public:
  explicit Ordered(bool oldest) : oldest_(oldest) {}
  void Grow(std::int32_t capacity) override { links_.resize(static_cast<std::size_t>(capacity)); }
  void Insert(std::int32_t slot, double) override {
    links_[slot] = {newest_slot_, kNone};
    // in an empty list there is no neighbour to link
    (newest_slot_ == kNone ? oldest_slot_ : links_[newest_slot_].newer) = slot;
    newest_slot_ = slot;
  }
  void Delete(std::int32_t slot) override {
    const Links links = links_[slot];
    // without a neighbour, an end of the list moves
    (links.older == kNone ? oldest_slot_ : links_[links.older].newer) = links.newer;
    (links.newer == kNone ? newest_slot_ : links_[links.newer].older) = links.older;
  }
  void Update(std::int32_t, double) override {}
  Pick Select(TableRandom&) override { return {oldest_ ? oldest_slot_ : newest_slot_, 1.0}; }
  void Clear() override { oldest_slot_ = newest_slot_ = kNone; }
  void Save(StateWriter& writer) const override {
    // the oldest first, because inserting in this order makes the same list
    for (std::int32_t slot = oldest_slot_; slot != kNone; slot = links_[slot].newer) {
      writer.Put(slot);
    }
  }
  void Load(StateReader& reader, std::span<const std::int32_t> slots,
            std::span<const double>) override {
    Clear();
    for (const std::int32_t slot : LoadOrder(reader, slots, links_.size())) Insert(slot, 0);
  }

 private:
  static constexpr std::int32_t kNone = -1;
  struct Links {
    std::int32_t older = kNone;
    std::int32_t newer = kNone;
  };
  const bool oldest_;
  std::vector<Links> links_;
  std::int32_t oldest_slot_ = kNone;
  std::int32_t newest_slot_ = kNone;
};

// A binary heap; of items with equal priority, the first one inserted is on top.
class Heap final : public Selector {
 public:
  explicit Heap(bool max) : sign_(max ? -1.0 : 1.0) {}
  void Grow(std::int32_t capacity) override { place_.resize(static_cast<std::size_t>(capacity)); }
  void Insert(std::int32_t slot, double priority) override {
    // a gap at the end, which moves up to the place of the new entry
    heap_.push_back({});
    Up(heap_.size() - 1, {sign_ * priority, next_number_++, slot});
  }
  void Delete(std::int32_t slot) override {
    const std::size_t place = place_[slot];
    const Entry last = heap_.back();
    heap_.pop_back();
    // the last entry fills the gap, unless it was the last itself
    if (place < heap_.size()) Put(place, last);
  }
  void Update(std::int32_t slot, double priority) override {
    Entry entry = heap_[place_[slot]];
    // its number stays, so that among equals it is as old as before
    entry.key = sign_ * priority;
    Put(place_[slot], entry);
  }
  Pick Select(TableRandom&) override { return {heap_[0].slot, 1.0}; }
  void Clear() override { heap_.clear(); }
  void Save(StateWriter& writer) const override {
    writer.Put(next_number_);
    for (const Entry& entry : heap_) writer.Put(entry.slot);
    // the numbers of inserts are saved, so that ties are broken as before after a load
    for (const Entry& entry : heap_) writer.Put(entry.number);
  }
  void Load(StateReader& reader, std::span<const std::int32_t> slots,
            std::span<const double> priorities) override {
    Clear();
    next_number_ = reader.Get<std::uint64_t>();
    // the saved order is by place in the heap, but priorities are by slot
    std::vector<double> priority_of(place_.size());
    for (std::size_t i = 0; i < slots.size(); ++i) priority_of[slots[i]] = priorities[i];
    for (const std::int32_t slot : LoadOrder(reader, slots, place_.size())) {
      place_[slot] = heap_.size();
      heap_.push_back({sign_ * priority_of[slot], 0, slot});
    }
    for (Entry& entry : heap_) entry.number = reader.Get<std::uint64_t>();
    for (std::size_t i = 1; i < heap_.size(); ++i) {
      // a damaged heap would choose wrong items for ever
      if (heap_[i].Before(heap_[(i - 1) / 2])) throw SpecError("has a heap that is none");
    }
  }

 private:
  struct Entry {
    double key = 0;            // the smallest is on top
    std::uint64_t number = 0;  // the insert's
    std::int32_t slot = 0;
    bool Before(const Entry& other) const {
      return key != other.key ? key < other.key : number < other.number;
    }
  };

  void Put(std::size_t place, const Entry& entry) {
    if (place > 0 && entry.Before(heap_[(place - 1) / 2])) {
      Up(place, entry);
    } else {
      Down(place, entry);
    }
  }
  void Up(std::size_t place, const Entry& entry) {
    for (; place > 0 && entry.Before(heap_[(place - 1) / 2]); place = (place - 1) / 2) {
      Store(place, heap_[(place - 1) / 2]);
    }
    Store(place, entry);
  }
  void Down(std::size_t place, const Entry& entry) {
    for (;;) {
      std::size_t child = 2 * place + 1;
      if (child >= heap_.size()) break;
      // the child that may stand above the other
      if (child + 1 < heap_.size() && heap_[child + 1].Before(heap_[child])) ++child;
      if (!heap_[child].Before(entry)) break;
      Store(place, heap_[child]);
      place = child;
    }
    Store(place, entry);
  }
  void Store(std::size_t place, const Entry& entry) {
    heap_[place] = entry;
    place_[entry.slot] = place;
  }

  const double sign_;
  std::uint64_t next_number_ = 0;
  std::vector<Entry> heap_;
  std::vector<std::size_t> place_;  // a slot's in heap_
};

}  // namespace

double MostPriority(const SelectorSpec& spec) {
  // 2^31 items, the most that a table has, then weigh less than 1e300 in all
  constexpr double kMostWeight = 1e290;
  constexpr double kMost = std::numeric_limits<double>::max();
  if (spec.kind != SelectorKind::kPrioritized || !(spec.exponent > 0)) return kMost;
  return std::min(kMost, std::pow(kMostWeight, 1.0 / spec.exponent));
}

double MostPriority(const SelectorSpec& sampler, const SelectorSpec& remover) {
  return std::min(MostPriority(sampler), MostPriority(remover));
}

const char* NameOf(SelectorKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

SelectorKind SelectorKindOf(const std::string& name, const std::string& what) {
  std::string list;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<SelectorKind>(i);
    list += std::string(i > 0 ? ", " : "") + kNames[i];
  }
  throw SpecError(what + " is '" + name + "', expected one of " + list);
}

std::unique_ptr<Selector> MakeSelector(const SelectorSpec& spec) {
  switch (spec.kind) {
    case SelectorKind::kUniform: return std::make_unique<Uniform>();
    case SelectorKind::kPrioritized:
      if (!(spec.exponent >= 0) || !std::isfinite(spec.exponent)) {
        throw SpecError("the priority exponent is " + std::to_string(spec.exponent) +
                        ", expected a number of 0 or more");
      }
      return std::make_unique<Prioritized>(spec.exponent);
    case SelectorKind::kFifo: return std::make_unique<Ordered>(/*oldest=*/true);
    case SelectorKind::kLifo: return std::make_unique<Ordered>(/*oldest=*/false);
    case SelectorKind::kMaxHeap: return std::make_unique<Heap>(/*max=*/true);
    case SelectorKind::kMinHeap: return std::make_unique<Heap>(/*max=*/false);
  }
  throw SpecError("unknown selector");
}

}  // namespace rollouts::replay
