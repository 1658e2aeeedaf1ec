// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/column.h"

#include <set>
#include <utility>

#include "rollouts/support/errors.h"

namespace rollouts::replay {
namespace {

constexpr std::int64_t kWord = 8;

std::int64_t Aligned(std::int64_t bytes, std::int64_t to) { return (bytes + to - 1) / to * to; }

// Throws SpecError for columns that no row can have.
void CheckSpecs(const std::vector<ColumnSpec>& specs) {
  if (specs.empty()) throw SpecError("columns is empty, expected at least one");
  std::set<std::string> names;
  for (const ColumnSpec& spec : specs) {
    // names with an @ are fields that a gather computes
    if (spec.name.empty() || spec.name[0] == '@') {
      throw SpecError("column '" + spec.name + "': a name is not empty and has no @ in front");
    }
    if (!names.insert(spec.name).second) throw SpecError("column '" + spec.name + "' is there twice");
    if (spec.stack < 1 || spec.stack > ColumnSpec::kMaxStack) {
      throw SpecError("column '" + spec.name + "' has stack " + std::to_string(spec.stack) +
                      ", expected 1 to " + std::to_string(ColumnSpec::kMaxStack));
    }
    if (spec.bytes() < 1) throw SpecError("column '" + spec.name + "' has rows of no bytes");
  }
}

}  // namespace

ChunkLayout::ChunkLayout(std::vector<ColumnSpec> given, std::int32_t rows)
    : specs(std::move(given)), chunk_rows(rows) {
  CheckSpecs(specs);
  if (rows < 1 || rows > (1 << 20)) {
    throw SpecError("chunk_rows is " + std::to_string(rows) + ", expected 1 to 1048576");
  }
  // records are read and written with memcpy: only their beginnings are aligned
  const auto reserve = [this](std::int64_t bytes) { return std::exchange(row_bytes, row_bytes + bytes); };
  for (const ColumnSpec& spec : specs) {
    Column column{.bytes = spec.bytes(), .stack = spec.stack, .padding = spec.padding};
    if (spec.stacked()) {
      has_stacks = true;
      // a row has the number of its newest frame, and how far before it the others lie
      column.newest_offset = reserve(sizeof(std::int64_t));
      column.deltas_offset = reserve(spec.stack);
    } else {
      column.offset = reserve(column.bytes);
    }
    columns.push_back(column);
  }
  flags_offset = reserve(1);
  row_bytes = Aligned(row_bytes, kWord);

  // records first, then the frames of each stacked column
  chunk_bytes = Aligned(row_bytes * rows, kCacheLine);
  for (Column& column : columns) {
    if (column.stack == 1) continue;
    // any row must fit into an empty chunk, and the first row may bring a whole stack
    column.capacity = rows + column.stack - 1;
    column.offset = chunk_bytes;
    chunk_bytes += Aligned(column.bytes * column.capacity, kCacheLine);
  }
}

}  // namespace rollouts::replay
