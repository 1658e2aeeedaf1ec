// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "rollouts/support/errors.h"

namespace rollouts::replay {
namespace {

constexpr std::int32_t kFirstCapacity = 256;  // slots
static_assert(sizeof(Table::Item) == kCacheLine);

void CheckOrder(const TableSpec& spec) {
  if (spec.order == TableSpec::Order::kAny) return;
  // the limiter counts items that were not sampled, which is a queue's length only where every
  // sample removes its item
  const bool queue = spec.order == TableSpec::Order::kQueue;
  const SelectorKind kind = queue ? SelectorKind::kFifo : SelectorKind::kLifo;
  if (spec.sampler.kind != kind || spec.remover.kind != kind || spec.max_times_sampled != 1) {
    throw SpecError("table '" + spec.name + "' has the limiter of a " +
                    (queue ? "queue" : "stack") + ", expected sampler and remover " +
                    NameOf(kind) + " and max_times_sampled 1");
  }
}

// Refuses specs that no table can have; selectors and the limiter check their own numbers.
void CheckSpec(const TableSpec& spec) {
  const std::string table = "table '" + spec.name + "': ";
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (spec.max_size < 1 || spec.max_size > kMost) {
    throw SpecError(table + "max_size is " + std::to_string(spec.max_size) + ", expected 1 to " +
                    std::to_string(kMost) + " items");
  }
  if (spec.max_times_sampled < 0) {
    throw SpecError(table + "max_times_sampled is " + std::to_string(spec.max_times_sampled) +
                    ", expected 0 (no limit) or more");
  }
  if (spec.limiter.min_size > spec.max_size) {
    throw SpecError(table + "the rate limiter's min_size is " +
                    std::to_string(spec.limiter.min_size) + ", above max_size " +
                    std::to_string(spec.max_size) + ": nothing could ever be sampled");
  }
  CheckOrder(spec);
}

}  // namespace

Table::Contents::Contents(const TableSpec& spec)
    : sampler(MakeSelector(spec.sampler)),
      remover(MakeSelector(spec.remover)),
      limiter(spec.limiter),
      random(spec.seed) {}

void Table::Contents::GrowTo(std::int32_t capacity) {
  items.resize(static_cast<std::size_t>(capacity));
  free_slots.reserve(static_cast<std::size_t>(capacity));
  sampler->Grow(capacity);
  remover->Grow(capacity);
}

std::int32_t Table::Contents::TakeSlot(std::int64_t max_size) {
  // used slots first, so that memory grows only to the most items at one time
  if (!free_slots.empty()) {
    const std::int32_t slot = free_slots.back();
    free_slots.pop_back();
    return slot;
  }
  const auto capacity = static_cast<std::int64_t>(items.size());
  if (num_slots == capacity) {
    // doubled, so that growing costs little in the long run
    const std::int64_t wanted = std::max<std::int64_t>(kFirstCapacity, 2 * capacity);
    GrowTo(static_cast<std::int32_t>(std::min(wanted, max_size)));
  }
  return num_slots++;
}

std::unique_ptr<Table::Contents> Table::MakeContents(const TableSpec& spec) {
  return std::make_unique<Contents>(spec);
}

Table::Table(const TableSpec& spec, ChunkAllocator& allocator)
    : spec_((CheckSpec(spec), spec)),
      most_priority_(MostPriority(spec.sampler, spec.remover)),
      allocator_(allocator),
      contents_(MakeContents(spec)) {}

Table::~Table() = default;  // the chunks are freed with their allocator

// --- waiting -----------------------------------------------------------------------------

bool Table::Wait(std::unique_lock<std::mutex>& lock, std::condition_variable& event,
                 std::int32_t& waiting, std::optional<Clock::time_point> deadline) {
  // with a deadline in the past, as in InsertNow, there is no wait
  if (deadline && Clock::now() >= *deadline) return false;
  ++waiting;
  if (deadline) {
    event.wait_until(lock, *deadline);
  } else {
    event.wait(lock);
  }
  --waiting;
  return true;
}

// Wakes all waiters, because they need different numbers.
void Table::NotifyInserters() {
  if (waiting_inserts_ > 0) may_insert_.notify_all();
}

void Table::NotifySamplers() {
  if (waiting_samples_ > 0) may_sample_.notify_all();
}

void Table::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  may_insert_.notify_all();
  may_sample_.notify_all();
}

// --- inserting ---------------------------------------------------------------------------

std::int64_t Table::Insert(std::span<const RowRun> runs, std::span<const double> priorities,
                           std::uint64_t generation, std::optional<Clock::time_point> deadline,
                           std::span<std::int64_t> keys) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    // the limiter decides item by item; the lock is free while this call waits
    for (;;) {
      // items inserted before belong to the table; the next call throws for the others
      if (i > 0 && (closed_ || generation != generation_)) return static_cast<std::int64_t>(i);
      if (closed_) throw ClosedError("insert: the replay store is closed");
      if (generation != generation_) {
        throw ProtocolError("insert: another state was loaded meanwhile; append the rows anew");
      }
      if (contents_->limiter.CanInsert(1)) break;
      // samplers may wait for the items inserted so far, and make room
      NotifySamplers();
      if (!Wait(lock, may_insert_, waiting_inserts_, deadline)) return static_cast<std::int64_t>(i);
    }
    keys[i] = InsertOne(runs[i], priorities[i]);
  }
  NotifySamplers();
  return static_cast<std::int64_t>(runs.size());
}

std::int64_t Table::InsertOne(const RowRun& run, double priority) {
  Contents& contents = *contents_;
  // without a priority the item gets the highest one, so that it is sampled soon
  if (std::isnan(priority)) priority = contents.max_priority;
  contents.max_priority = std::max(contents.max_priority, priority);
  // a full table removes an item first
  if (contents.size >= spec_.max_size) RemoveSlot(contents.remover->Select(contents.random).slot);

  const std::int32_t slot = contents.TakeSlot(spec_.max_size);
  Item& item = contents.items[slot];
  item.run = run;
  item.priority = priority;
  item.insert_index = contents.limiter.inserts();
  item.times_sampled = 0;
  item.live = 1;
  contents.sampler->Insert(slot, priority);
  contents.remover->Insert(slot, priority);
  contents.limiter.Insert();
  ++contents.size;
  return Contents::KeyOf(slot, item.generation);
}

void Table::RemoveSlot(std::int32_t slot) {
  Contents& contents = *contents_;
  Item& item = contents.items[slot];
  contents.sampler->Delete(slot);
  contents.remover->Delete(slot);
  contents.limiter.Delete();
  // the sum counts only items in the table, for CanSample
  contents.uses -= item.times_sampled;
  --contents.size;
  item.live = 0;
  // the item's keys are invalid from here on
  item.generation = (item.generation + 1) & kGenerations;
  item.run.Unref(allocator_);
  // allocates nothing, because GrowTo has made room for every slot
  contents.free_slots.push_back(slot);
}

// --- sampling ----------------------------------------------------------------------------

bool Table::Sample(std::int64_t count, std::optional<Clock::time_point> deadline,
                   std::vector<Sampled>& out) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    if (closed_) throw ClosedError("sample: the replay store is closed");
    // samples are kept here until there are enough for one batch, also past a deadline
    const std::int64_t before = std::ssize(contents_->drawn);
    DrawAdmitted(count - before);
    if (std::ssize(contents_->drawn) > before) NotifyInserters();
    if (std::ssize(contents_->drawn) >= count) break;
    // there may be enough for a waiter that needs fewer
    if (std::ssize(contents_->drawn) > before) NotifySamplers();
    if (!Wait(lock, may_sample_, waiting_samples_, deadline)) return false;
  }
  std::vector<Sampled>& drawn = contents_->drawn;
  // the usual case, in which no sample is copied
  if (out.empty() && std::ssize(drawn) == count) {
    out.swap(drawn);
    return true;
  }
  out.insert(out.end(), drawn.begin(), drawn.begin() + count);
  drawn.erase(drawn.begin(), drawn.begin() + count);
  return true;
}

void Table::DrawAdmitted(std::int64_t count) {
  if (count <= 0) return;
  Contents& contents = *contents_;
  contents.drawn.reserve(contents.drawn.size() + static_cast<std::size_t>(count));
  if (spec_.max_times_sampled > 0) {
    // a sample may remove its item: the next one is admitted and drawn after that
    for (std::int64_t i = 0; i < count && contents.limiter.CanSample(1); ++i) {
      contents.drawn.push_back(TakeSample(contents.sampler->Select(contents.random)));
    }
    return;
  }
  count = contents.limiter.AdmittedSamples(count);
  if (count == 0) return;
  // nothing is removed in between, so that one walk through the tree finds all of them
  picks_.resize(static_cast<std::size_t>(count));
  contents.sampler->SelectMany(contents.random, picks_);
  // items lie anywhere in memory, so they are prefetched and their cache misses overlap
  for (const Selector::Pick& pick : picks_) __builtin_prefetch(&contents.items[pick.slot], 1);
  // their chunks are prefetched likewise, because they are referenced next
  for (const Selector::Pick& pick : picks_) {
    __builtin_prefetch(contents.items[pick.slot].run.first, 1);
  }
  for (const Selector::Pick& pick : picks_) {
    const RowRun& run = contents.items[pick.slot].run;
    if (run.num_chunks > 1) __builtin_prefetch(run.first->next, 1);
  }
  for (const Selector::Pick& pick : picks_) contents.drawn.push_back(TakeSample(pick));
}

Sampled Table::TakeSample(const Selector::Pick& pick) {
  Contents& contents = *contents_;
  Item& item = contents.items[pick.slot];
  ++item.times_sampled;
  ++contents.uses;
  contents.limiter.Sample();
  const Sampled sampled{.run = item.run,
                        .key = Contents::KeyOf(pick.slot, item.generation),
                        .insert_index = item.insert_index,
                        .table_size = contents.size,
                        .num_inserts = contents.limiter.inserts(),
                        .probability = pick.probability,
                        .priority = item.priority,
                        .times_sampled = item.times_sampled};
  // the sample takes its own reference before its item may be removed
  sampled.run.Ref();
  if (item.times_sampled == spec_.max_times_sampled) RemoveSlot(pick.slot);
  return sampled;
}

void Table::Look(std::span<const std::int64_t> keys, std::vector<Sampled>& out) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    // all keys are checked first, so that an error leaves no rows referenced
    if (SlotOf(keys[i]) < 0) {
      throw SpecError("keys[" + std::to_string(i) + "] is " + std::to_string(keys[i]) +
                      ", which is no item of table '" + spec_.name + "' (any more)");
    }
  }
  out.reserve(keys.size());
  for (const std::int64_t key : keys) {
    const Item& item = contents_->items[SlotOf(key)];
    item.run.Ref();
    out.push_back({.run = item.run,
                   .key = key,
                   .insert_index = item.insert_index,
                   .table_size = contents_->size,
                   .num_inserts = contents_->limiter.inserts(),
                   .probability = 0,
                   .priority = item.priority,
                   .times_sampled = item.times_sampled});
  }
}

// --- by key ------------------------------------------------------------------------------

std::int32_t Table::SlotOf(std::int64_t key) const {
  // the reverse of KeyOf
  const std::int64_t slot = key & 0xFFFFFFFF;
  if (key < 0 || slot >= contents_->num_slots) return -1;
  const Item& item = contents_->items[static_cast<std::size_t>(slot)];
  if (!item.live || item.generation != static_cast<std::uint32_t>(key >> 32)) return -1;
  return static_cast<std::int32_t>(slot);
}

std::int64_t Table::UpdatePriorities(std::span<const std::int64_t> keys,
                                     std::span<const double> priorities) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::int64_t found = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::int32_t slot = SlotOf(keys[i]);
    // removed since it was sampled, which is no error
    if (slot < 0) continue;
    ++found;
    contents_->items[slot].priority = priorities[i];
    contents_->max_priority = std::max(contents_->max_priority, priorities[i]);
    contents_->sampler->Update(slot, priorities[i]);
    contents_->remover->Update(slot, priorities[i]);
  }
  return found;
}

std::int64_t Table::Delete(std::span<const std::int64_t> keys) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::int64_t found = 0;
  for (const std::int64_t key : keys) {
    const std::int32_t slot = SlotOf(key);
    if (slot < 0) continue;
    ++found;
    RemoveSlot(slot);
  }
  // a table below min_size admits inserts again
  NotifyInserters();
  return found;
}

void Table::Reset() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Contents& contents = *contents_;
  for (std::int32_t slot = 0; slot < contents.num_slots; ++slot) {
    if (contents.items[slot].live) RemoveSlot(slot);
  }
  // samples drawn for a call that never came hold rows too
  for (const Sampled& sampled : contents.drawn) sampled.run.Unref(allocator_);
  contents.drawn.clear();
  contents.limiter.Reset();
  contents.max_priority = 1;
  NotifyInserters();
}

std::vector<std::int64_t> Table::Keys() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::int32_t> slots;
  for (std::int32_t slot = 0; slot < contents_->num_slots; ++slot) {
    if (contents_->items[slot].live) slots.push_back(slot);
  }
  const auto& items = contents_->items;
  // sorted, because slots are used again, so that their order is not by age
  std::sort(slots.begin(), slots.end(), [&](std::int32_t a, std::int32_t b) {
    return items[a].insert_index < items[b].insert_index;
  });
  std::vector<std::int64_t> keys;
  for (const std::int32_t slot : slots) keys.push_back(Contents::KeyOf(slot, items[slot].generation));
  return keys;
}

// --- looking -----------------------------------------------------------------------------

TableInfo Table::Info() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const RateLimiter& limiter = contents_->limiter;
  return {contents_->size,         limiter.inserts(),      limiter.samples(), limiter.deletes(),
          contents_->max_priority, waiting_inserts_, waiting_samples_};
}

bool Table::CanInsert(std::int64_t n) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return contents_->limiter.CanInsert(n);
}

bool Table::CanSample(std::int64_t n) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  // samples that were drawn already need no admission by the limiter
  const std::int64_t missing = n - std::ssize(contents_->drawn);
  if (missing <= 0) return true;
  return contents_->limiter.CanSample(missing) &&
         (spec_.max_times_sampled == 0 ||
          contents_->size * spec_.max_times_sampled - contents_->uses >= missing);
}

std::uint64_t Table::generation() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return generation_;
}

std::uint64_t Table::random_seed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return contents_->random.seed();
}

void Table::Replace(std::unique_ptr<Contents> contents) {
  for (const Item& item : contents_->items) {
    if (item.live) item.run.Unref(allocator_);
  }
  for (const Sampled& sampled : contents_->drawn) sampled.run.Unref(allocator_);
  contents_ = std::move(contents);
  // a waiting Insert has rows of the old state: it sees another generation and stops
  ++generation_;
  may_insert_.notify_all();
  may_sample_.notify_all();
}

}  // namespace rollouts::replay
