// SPDX-License-Identifier: Apache-2.0
// Building batches: which rows of each item go where.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rollouts/replay/column.h"
#include "rollouts/replay/hindsight.h"
#include "rollouts/replay/table.h"
#include "rollouts/replay/worker_threads.h"

namespace rollouts::replay {

// One array of a batch.
struct FieldSpec {
  std::string name;
  std::string column;  // one of the store's, or one of the six names that start with @
  // the first row to take of the item; negative: counted from its end, -1 is its last row
  std::int64_t offset = 0;
  std::int64_t count = 0;  // rows; 0: one row, without an axis for it
};

// A plan that was checked once against a store's columns. Immutable, hence thread-safe.
class GatherPlan {
 public:
  enum class Source : std::int32_t {
    kColumn, kStack, kValid, kFirst, kFinal, kRow,
    // with hindsight only: whether a sample has another goal, and the goal that each of its steps
    // achieved
    kRelabelled, kAchieved
  };
  struct Field {
    FieldSpec spec;
    Source source = Source::kColumn;
    std::size_t column = 0;           // number in the layout, for the first two sources
    std::int64_t value_bytes = 0;     // size of one row in the output
    std::int64_t rows() const { return spec.count == 0 ? 1 : spec.count; }
  };

  // Throws SpecError. `hindsight` needs the fields obs and next_obs, both of the observation
  // column, and reward.
  GatherPlan(const ChunkLayout& layout, const std::vector<FieldSpec>& fields, bool time_major,
             const std::optional<HindsightSpec>& hindsight = {});

  const std::vector<Field>& fields() const { return fields_; }
  const Hindsight* hindsight() const { return hindsight_ ? &*hindsight_ : nullptr; }
  bool time_major() const { return time_major_; }
  std::int64_t item_bytes() const { return item_bytes_; }

  // Writes the rows of items [begin, end) of a batch to `out`, which has one pointer per field.
  void Gather(std::span<const Sampled> batch, std::int64_t begin, std::int64_t end,
              std::span<std::uint8_t* const> out) const;
  // All of the batch, with threads where it is large enough.
  void GatherAll(std::span<const Sampled> batch, std::span<std::uint8_t* const> out,
                 WorkerThreads& threads) const;

 private:
  void ReadHindsight(const HindsightSpec& spec);
  void GatherField(const Field& field, std::span<const Sampled> batch, std::int64_t item,
                   std::uint8_t* out) const;
  // Prefetches the beginning of an item's run of rows (all of it if the item is a transition), and
  // the beginning of the row of its goal.
  void Prefetch(const Sampled& sampled) const;
  void CopyRow(const Field& field, const RowRun& run, const Chunk& chunk, std::int64_t row,
               std::uint8_t* to) const;
  void CopyStack(const Field& field, const RowRun& run, const std::uint8_t* record,
                 std::uint8_t* to) const;

  const ChunkLayout& layout_;
  const bool time_major_;
  std::vector<Field> fields_;
  std::int64_t item_bytes_ = 0;  // size of one item, in all fields
  std::optional<Hindsight> hindsight_;
  // numbers of the fields that hindsight changes; -1: there is none
  std::ptrdiff_t obs_ = -1, next_obs_ = -1, reward_ = -1, relabelled_ = -1, achieved_ = -1;
};

}  // namespace rollouts::replay
