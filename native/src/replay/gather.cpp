// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/gather.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "rollouts/support/errors.h"

namespace rollouts::replay {
namespace {

constexpr std::int64_t kBytesPerRange = 128 << 10;  // the work that is worth waking a thread for
// names of what a sample returns in addition to the fields
constexpr std::array kReserved{"key",        "probability", "priority", "times_sampled",
                               "table_size", "stream_id",   "start",    "length",
                               "insert_index", "num_inserts"};

// Finds where a field's values come from, once and not for each batch.
GatherPlan::Field Resolve(const ChunkLayout& layout, const FieldSpec& spec) {
  using Source = GatherPlan::Source;
  GatherPlan::Field field{.spec = spec, .value_bytes = 1};
  // these are no columns: a row's flags, its number, or whether there is a row at all
  if (spec.column == "@valid") {
    field.source = Source::kValid;
  } else if (spec.column == "@first") {
    field.source = Source::kFirst;
  } else if (spec.column == "@final") {
    field.source = Source::kFinal;
  } else if (spec.column == "@row") {
    field.source = Source::kRow;
    field.value_bytes = sizeof(std::int64_t);
  } else if (spec.column == "@relabelled") {
    field.source = Source::kRelabelled;
  } else if (spec.column == "@achieved") {
    field.source = Source::kAchieved;
  } else {
    std::string list;
    // a column of the store, by name; the loop also lists them for the message
    for (std::size_t c = 0; c < layout.specs.size(); ++c) {
      if (layout.specs[c].name == spec.column) {
        field.column = c;
        field.source = layout.specs[c].stacked() ? Source::kStack : Source::kColumn;
        field.value_bytes = layout.specs[c].value_bytes();
        return field;
      }
      list += layout.specs[c].name + ", ";
    }
    throw SpecError("field '" + spec.name + "' is of the unknown column '" + spec.column +
                    "'; expected one of " + list + "@valid, @first, @final, @row, @relabelled, @achieved");
  }
  return field;
}

// Copies like CopyValue in stream.cpp: most values are small.
inline void Copy(std::uint8_t* to, const std::uint8_t* from, std::int64_t bytes) {
  switch (bytes) {
    case 1: *to = *from; return;
    case 4: std::memcpy(to, from, 4); return;
    case 8: std::memcpy(to, from, 8); return;
    default: std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
}

}  // namespace

GatherPlan::GatherPlan(const ChunkLayout& layout, const std::vector<FieldSpec>& fields,
                       bool time_major, const std::optional<HindsightSpec>& hindsight)
    : layout_(layout), time_major_(time_major) {
  std::set<std::string> names;
  for (const FieldSpec& spec : fields) {
    // the fields and the infos of a sample are in one dict
    if (!names.insert(spec.name).second) throw SpecError("field '" + spec.name + "' is there twice");
    if (std::find(kReserved.begin(), kReserved.end(), spec.name) != kReserved.end()) {
      throw SpecError("field '" + spec.name + "' has a name that sample() uses itself");
    }
    if (spec.count < 0) {
      throw SpecError("field '" + spec.name + "' has count " + std::to_string(spec.count) +
                      ", expected 0 (one row, no axis) or more");
    }
    fields_.push_back(Resolve(layout, spec));
    const std::ptrdiff_t number = std::ssize(fields_) - 1;
    if (fields_.back().source == Source::kRelabelled) relabelled_ = number;
    if (fields_.back().source == Source::kAchieved) achieved_ = number;
    // decides how many items are worth a thread
    item_bytes_ += fields_.back().rows() * fields_.back().value_bytes;
  }
  if (hindsight) ReadHindsight(*hindsight);
  if (!hindsight_ && (relabelled_ >= 0 || achieved_ >= 0)) {
    throw SpecError("fields of @relabelled and @achieved need a plan with hindsight");
  }
}

void GatherPlan::ReadHindsight(const HindsightSpec& spec) {
  const auto field = [&](const char* name) {
    const auto has = [&](const Field& one) { return one.spec.name == name; };
    const auto found = std::ranges::find_if(fields_, has);
    if (found == fields_.end() || found->source != Source::kColumn) {
      throw SpecError(std::string("hindsight needs a field '") + name + "' of a column");
    }
    return found - fields_.begin();
  };
  obs_ = field("obs");
  next_obs_ = field("next_obs");
  reward_ = field("reward");
  const std::size_t column = fields_[static_cast<std::size_t>(obs_)].column;
  hindsight_.emplace(layout_, column, spec);
  // checked, because these are written by pointer
  const Field& reward = fields_[static_cast<std::size_t>(reward_)];
  const bool fits = fields_[static_cast<std::size_t>(next_obs_)].column == column && !time_major_ &&
                    reward.rows() == spec.steps && reward.value_bytes == sizeof(float);
  if (!fits) throw SpecError("hindsight needs batch-major float32 rewards, one for each step");
  if (achieved_ < 0) return;
  Field& achieved = fields_[static_cast<std::size_t>(achieved_)];
  achieved.value_bytes = hindsight_->goal_bytes();
  if (achieved.rows() != spec.steps || achieved.spec.count == 0) {
    throw SpecError("a field of @achieved has another number of steps than hindsight");
  }
  item_bytes_ += spec.steps * achieved.value_bytes;
}

void GatherPlan::GatherAll(std::span<const Sampled> batch, std::span<std::uint8_t* const> out,
                           WorkerThreads& threads) const {
  // a range has as many items as are worth a thread, however small each item is
  const std::int64_t grain = std::max<std::int64_t>(1, kBytesPerRange / std::max<std::int64_t>(1, item_bytes_));
  threads.For(std::ssize(batch), grain, [&](std::int64_t begin, std::int64_t end) {
    Gather(batch, begin, end, out);
  });
}

void GatherPlan::Gather(std::span<const Sampled> batch, std::int64_t begin, std::int64_t end,
                        std::span<std::uint8_t* const> out) const {
  // rows of random items lie far apart: the next ones are prefetched while these are copied
  constexpr std::int64_t kAhead = 8;
  for (std::int64_t item = begin; item < std::min(begin + kAhead, end); ++item) {
    Prefetch(batch[item]);
  }
  const auto at = [&](std::ptrdiff_t field) {
    return field < 0 ? nullptr : out[static_cast<std::size_t>(field)];
  };
  const Hindsight::Out goals{at(obs_), at(next_obs_), at(reward_), at(relabelled_), at(achieved_)};
  for (std::int64_t item = begin; item < end; ++item) {
    if (item + kAhead < end) Prefetch(batch[item + kAhead]);
    for (std::size_t f = 0; f < fields_.size(); ++f) GatherField(fields_[f], batch, item, out[f]);
    if (hindsight_) hindsight_->Relabel(batch[item], item, goals);
  }
}

void GatherPlan::Prefetch(const Sampled& sampled) const {
  constexpr std::int64_t kMost = 8 * kCacheLine;
  const RowRun& run = sampled.run;
  if (sampled.goal_row >= 0) __builtin_prefetch(RecordOfRow(layout_, run, sampled.goal_row));
  const std::uint8_t* const record = RecordOfRow(layout_, run, run.start);
  const std::int64_t bytes = std::min(run.length * layout_.row_bytes, kMost);
  // prefetches the last byte, too, as a run need not begin at a cache line
  for (std::int64_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(record + at);
  __builtin_prefetch(record + bytes - 1);
}

void GatherPlan::GatherField(const Field& field, std::span<const Sampled> batch, std::int64_t item,
                             std::uint8_t* out) const {
  // Relabel writes these fields
  if (field.source >= Source::kRelabelled) return;
  const RowRun& run = batch[item].run;
  const std::int64_t rows = field.rows();
  // a negative offset counts from the item's end, because items differ in length
  const std::int64_t from = field.spec.offset + (field.spec.offset < 0 ? run.length : 0);
  const std::int64_t size = std::ssize(batch);
  const Chunk* chunk = run.first;
  std::int32_t before = 0;  // chunks of the run before this one
  for (std::int64_t j = 0; j < rows; ++j) {
    // (T, B, ...) or (B, T, ...)
    const std::int64_t place = time_major_ ? j * size + item : item * rows + j;
    std::uint8_t* const to = out + place * field.value_bytes;
    const std::int64_t index = from + j;
    if (index < 0 || index >= run.length) {
      // no row: zeros, and row number -1
      std::memset(to, field.source == Source::kRow ? 0xFF : 0,
                  static_cast<std::size_t>(field.value_bytes));
      continue;
    }
    const std::int64_t row = run.start + index;
    // rows come in order, so that the search for the chunk goes on from the last one
    while (before + 1 < run.num_chunks && row >= chunk->next->first_row) {
      chunk = chunk->next;
      ++before;
    }
    CopyRow(field, run, *chunk, row, to);
  }
}

void GatherPlan::CopyRow(const Field& field, const RowRun& run, const Chunk& chunk,
                         std::int64_t row, std::uint8_t* to) const {
  const std::uint8_t* const record = RecordOf(layout_, chunk, row - chunk.first_row);
  const auto has = [&](RowFlag flag) { return (record[layout_.flags_offset] & flag) != 0; };
  switch (field.source) {
    case Source::kColumn: {
      const ChunkLayout::Column& column = layout_.columns[field.column];
      Copy(to, record + column.offset, column.bytes);
      return;
    }
    case Source::kStack: CopyStack(field, run, record, to); return;
    case Source::kValid: *to = 1; return;
    case Source::kFirst: *to = has(kFirstRow); return;
    case Source::kFinal: *to = has(kFinalRow); return;
    case Source::kRow: std::memcpy(to, &row, sizeof(row)); return;
    case Source::kRelabelled:
    case Source::kAchieved: return;
  }
}

void GatherPlan::CopyStack(const Field& field, const RowRun& run, const std::uint8_t* record,
                           std::uint8_t* to) const {
  const std::size_t c = field.column;
  const ChunkLayout::Column& column = layout_.columns[c];
  std::int64_t newest;
  std::memcpy(&newest, record + column.newest_offset, sizeof(newest));
  const std::uint8_t* const deltas = record + column.deltas_offset;
  // a row's frames lie in its chunk or in earlier ones of the run, in order
  const Chunk* holder = run.first;
  std::int32_t before = 0;
  for (std::int32_t k = 0; k < column.stack; ++k, to += column.bytes) {
    // padding, where the episode did not have that many frames yet
    if (deltas[k] == ChunkLayout::kNoFrame) {
      std::memset(to, 0, static_cast<std::size_t>(column.bytes));
      continue;
    }
    // a byte for each frame, counted back from the newest
    const std::int64_t number = newest - deltas[k];
    while (before + 1 < run.num_chunks && number >= holder->next->frames[c].first) {
      holder = holder->next;
      ++before;
    }
    std::memcpy(to, holder->data + column.offset + (number - holder->frames[c].first) * column.bytes,
                static_cast<std::size_t>(column.bytes));
  }
}

}  // namespace rollouts::replay
