// SPDX-License-Identifier: Apache-2.0
// A table: items that refer to runs of rows, how they are chosen, and how fast they may come
// and go.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rollouts/replay/chunk.h"
#include "rollouts/replay/rate_limiter.h"
#include "rollouts/replay/selector.h"
#include "rollouts/replay/table_random.h"
#include "rollouts/support/huge_pages.h"
#include "rollouts/support/state.h"

namespace rollouts::replay {

using Clock = std::chrono::steady_clock;

struct TableSpec {
  std::string name;
  std::int64_t max_size = 0;
  SelectorSpec sampler;
  SelectorSpec remover;
  std::int32_t max_times_sampled = 0;  // 0: no limit
  std::uint64_t seed = 0;
  RateLimiterSpec limiter;
  enum class Order : std::int32_t { kAny, kQueue, kStack } order = Order::kAny;
};

// One item as it was sampled. Its rows stay until Unref.
struct Sampled {
  RowRun run;
  std::int64_t key = 0;
  std::int64_t insert_index = 0;
  std::int64_t table_size = 0;
  std::int64_t num_inserts = 0;
  double probability = 0;
  double priority = 0;
  std::int32_t times_sampled = 0;
  std::int64_t goal_row = -1;  // hindsight: the row of the new goal; -1: the item keeps its own
};

struct TableInfo {
  std::int64_t size = 0;
  std::int64_t inserts = 0;
  std::int64_t samples = 0;
  std::int64_t deletes = 0;
  double max_priority = 0;
  std::int32_t waiting_inserts = 0;
  std::int32_t waiting_samples = 0;
};

// Thread-safe. One mutex guards everything; while it is held, only ChunkAllocator's is ever taken.
class Table {
 public:
  // Throws SpecError for a spec that cannot work.
  Table(const TableSpec& spec, ChunkAllocator& allocator);
  ~Table();

  // Inserts items one by one, as the rate limiter admits them, until the deadline; without one,
  // only Close ends a wait early. Takes over the references of the items inserted, writes their
  // keys, and returns their number. `generation` is that of generation() when the runs were made:
  // ProtocolError when another state was loaded since. A NaN priority stands for the highest that
  // the table has seen. Throws ClosedError. Throws only before the first insert; after it, the call
  // ends early instead.
  std::int64_t Insert(std::span<const RowRun> runs, std::span<const double> priorities,
                      std::uint64_t generation, std::optional<Clock::time_point> deadline,
                      std::span<std::int64_t> keys);

  // Appends `count` samples to `out`, each drawn when the rate limiter admits it, as Reverb does: a
  // batch may be larger than what the limiter ever admits at once. False when the deadline came
  // first: the samples drawn until then are the first that the next call returns, whichever thread
  // makes it. References the rows of each. Throws ClosedError.
  bool Sample(std::int64_t count, std::optional<Clock::time_point> deadline,
              std::vector<Sampled>& out);

  // Returns the named items as samples that are not counted; their rows are referenced. Throws
  // SpecError for a key that no item has.
  void Look(std::span<const std::int64_t> keys, std::vector<Sampled>& out);

  // Returns the number of keys that were found.
  std::int64_t UpdatePriorities(std::span<const std::int64_t> keys,
                                std::span<const double> priorities);
  std::int64_t Delete(std::span<const std::int64_t> keys);
  void Reset();
  // The keys of all items, oldest insert first.
  std::vector<std::int64_t> Keys() const;

  TableInfo Info() const;
  bool CanInsert(std::int64_t n) const;
  bool CanSample(std::int64_t n) const;
  std::uint64_t generation() const;
  // The seed of the table's draws: that of a loaded state, if there is one.
  std::uint64_t random_seed() const;
  const TableSpec& spec() const { return spec_; }
  // The highest priority that an item may have; see MostPriority.
  double most_priority() const { return most_priority_; }

  // Wakes all waiting calls; they and all later Inserts and Samples throw ClosedError.
  void Close();

  // The highest Item::generation: 31 bits, because it is the upper half of a key, which is signed.
  static constexpr std::uint32_t kGenerations = 0x7FFFFFFF;

  // For saved states; the caller holds mutex().
  std::mutex& mutex() const { return mutex_; }
  struct alignas(64) Item {  // one cache line
    RowRun run;
    double priority = 0;
    std::int64_t insert_index = 0;
    std::int32_t times_sampled = 0;
    std::uint32_t generation : 31 = 0;  // how often the slot was used before
    std::uint32_t live : 1 = 0;
  };
  struct Contents;  // all that a state has
  const Contents& contents() const { return *contents_; }
  static std::unique_ptr<Contents> MakeContents(const TableSpec& spec);
  // Takes over the references of the new items and drops those of the old; wakes all waiting calls.
  void Replace(std::unique_ptr<Contents> contents);

 private:
  bool Wait(std::unique_lock<std::mutex>& lock, std::condition_variable& event,
            std::int32_t& waiting, std::optional<Clock::time_point> deadline);
  std::int64_t InsertOne(const RowRun& run, double priority);
  // Draws at most `count` samples, as many as are admitted now.
  void DrawAdmitted(std::int64_t count);
  Sampled TakeSample(const Selector::Pick& pick);
  void RemoveSlot(std::int32_t slot);
  std::int32_t SlotOf(std::int64_t key) const;  // -1: none
  void NotifyInserters();
  void NotifySamplers();

  const TableSpec spec_;
  const double most_priority_;
  ChunkAllocator& allocator_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable may_insert_;
  std::condition_variable may_sample_;
  std::int32_t waiting_inserts_ = 0;
  std::int32_t waiting_samples_ = 0;
  bool closed_ = false;
  std::uint64_t generation_ = 0;  // how often a state was loaded into the contents
  std::vector<Selector::Pick> picks_;  // scratch of one draw, kept to reuse its memory
  std::unique_ptr<Contents> contents_;
};

struct Table::Contents {
  explicit Contents(const TableSpec& spec);

  // Makes room for one more slot.
  void GrowTo(std::int32_t capacity);
  std::int32_t TakeSlot(std::int64_t max_size);
  static std::int64_t KeyOf(std::int32_t slot, std::uint32_t generation) {
    return static_cast<std::int64_t>(generation) << 32 | slot;
  }

  std::unique_ptr<Selector> sampler;
  std::unique_ptr<Selector> remover;
  RateLimiter limiter;
  TableRandom random;
  std::vector<Item, HugePageAllocator<Item>> items;  // by slot
  std::vector<std::int32_t> free_slots;  // the last is used next
  std::int32_t num_slots = 0;            // ever used
  std::int64_t size = 0;
  std::int64_t uses = 0;  // the sum of times_sampled of the items in the table
  double max_priority = 1;
  std::vector<Sampled> drawn;  // samples that were admitted and not returned yet, oldest first
};

}  // namespace rollouts::replay
