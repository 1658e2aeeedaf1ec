// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/column.h"

#include <set>
#include <utility>

#include "rollouts/pool/errors.h"

namespace rollouts::replay {
namespace {

constexpr std::int64_t kCacheLine = 64;

std::int64_t Aligned(std::int64_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

void CheckSpecs(const std::vector<ColumnSpec>& specs) {
  if (specs.empty()) throw SpecError("columns is empty, expected at least one");
  std::set<std::string> names;
  for (const ColumnSpec& spec : specs) {
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
  std::int64_t offset = 0;
  const auto reserve = [&](std::int64_t bytes) {
    const std::int64_t at = offset;
    offset += Aligned(bytes);
    return at;
  };
  for (const ColumnSpec& spec : specs) {
    Column column;
    column.bytes = spec.bytes();
    column.stack = spec.stack;
    column.padding = spec.padding;
    // any row must fit into an empty chunk: the first may bring a whole stack
    column.capacity = spec.stacked() ? rows + spec.stack - 1 : rows;
    column.offset = reserve(column.bytes * column.capacity);
    if (spec.stacked()) {
      column.newest_offset = reserve(static_cast<std::int64_t>(sizeof(std::int64_t)) * rows);
      column.deltas_offset = reserve(std::int64_t{spec.stack} * rows);
    }
    columns.push_back(column);
  }
  flags_offset = reserve(rows);
  chunk_bytes = offset;
}

}  // namespace rollouts::replay
