// SPDX-License-Identifier: Apache-2.0
// A stream of a replay store, and what its rows hold, read without the code that gathers them.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "rollouts/replay/stream.h"

namespace rollouts::replay {

inline ColumnSpec NumberColumn(std::string name) {
  return {.name = std::move(name), .dtype = "<i8", .item_bytes = 8, .shape = {}};
}

// Stacks of three frames of two bytes.
inline ColumnSpec FrameColumn(Padding padding) {
  return {.name = "frames", .dtype = "|u1", .item_bytes = 1, .shape = {2}, .stack = 3, .padding = padding};
}

// Stream 5 of these columns.
struct Rows {
  Rows(std::vector<ColumnSpec> specs, std::int32_t chunk_rows, std::int64_t max_bytes)
      : layout(std::move(specs), chunk_rows), allocator(layout, max_bytes, ""), stream(layout, allocator, 5) {}

  // A row whose first column, the only one, is a number.
  std::int64_t AppendNumber(std::int64_t number, std::uint8_t flags) {
    const auto* data = reinterpret_cast<const std::uint8_t*>(&number);
    return stream.AppendRow({.columns = {{.data = data, .stride = 8}}, .row = 0}, flags);
  }

  const std::uint8_t* Record(std::int64_t row) const {
    for (const Chunk* chunk : stream.chunks()) {
      const std::int64_t place = row - chunk->first_row;
      if (place >= 0 && place < chunk->num_rows) return RecordOf(layout, *chunk, place);
    }
    return nullptr;
  }
  std::uint8_t FlagsAt(std::int64_t row) const { return Record(row)[layout.flags_offset]; }
  std::int64_t NumberAt(std::int64_t row) const {
    std::int64_t number;
    std::memcpy(&number, Record(row) + layout.columns[0].offset, sizeof(number));
    return number;
  }
  // First bytes of the frames of a row of the first column; the second is 100 more, but of zeros.
  std::vector<int> StackAt(std::int64_t row) const {
    const ChunkLayout::Column& column = layout.columns[0];
    std::int64_t newest;
    std::memcpy(&newest, Record(row) + column.newest_offset, sizeof(newest));
    std::vector<int> frames;
    for (std::int32_t k = 0; k < column.stack; ++k) {
      const std::uint8_t delta = Record(row)[column.deltas_offset + k];
      const std::uint8_t* frame = delta == ChunkLayout::kNoFrame ? nullptr : Frame(newest - delta);
      frames.push_back(frame ? frame[0] : 0);
      if (frame && frame[1] != frame[0] + 100) frames.back() = -1;
    }
    return frames;
  }
  const std::uint8_t* Frame(std::int64_t number) const {
    for (const Chunk* chunk : stream.chunks()) {
      const std::int64_t place = number - chunk->frames[0].first;
      if (place < 0 || place >= chunk->frames[0].count) continue;
      return chunk->data + layout.columns[0].offset + place * layout.columns[0].bytes;
    }
    return nullptr;
  }

  ChunkLayout layout;
  ChunkAllocator allocator;
  Stream stream;
};

}  // namespace rollouts::replay
