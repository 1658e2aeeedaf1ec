// SPDX-License-Identifier: Apache-2.0
// Columns that a replay store keeps of each step, and their places in a chunk of memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rollouts::replay {

inline constexpr std::int64_t kCacheLine = 64;  // bytes; on x86-64 and most ARM cores

// Padding before the first frame of an episode where single frames are appended.
enum class Padding : std::uint8_t { kZero, kRepeat };

// One column of the store. A row of a plain column is its whole value. A stacked column keeps
// single frames, and a row records which `stack` of them make up its value.
struct ColumnSpec {
  std::string name;
  std::string dtype;  // NumPy's, such as "<f4"
  std::int64_t item_bytes = 0;
  std::vector<std::int64_t> shape;  // extents of a row, or of one frame
  std::int32_t stack = 1;           // 2 to kMaxStack: stacked
  Padding padding = Padding::kZero;

  static constexpr std::int32_t kMaxStack = 64;

  bool stacked() const { return stack > 1; }
  // Bytes of a row of a plain column, or of one frame.
  std::int64_t bytes() const {
    std::int64_t total = item_bytes;
    for (const std::int64_t extent : shape) total *= extent;
    return total;
  }
  std::int64_t value_bytes() const { return bytes() * stack; }
  bool operator==(const ColumnSpec&) const = default;
};

// Marks of a row.
enum RowFlag : std::uint8_t {
  kFirstRow = 1,  // the first of an episode
  kFinalRow = 2,  // the observation after an episode's last step; no step starts here
};

// Layout of a chunk's memory: first the records of all rows, each with its columns one after the
// other, then the frames of each stacked column. A read of one row, or of a few consecutive rows,
// thus touches one run of memory, without a cache miss for each column.
struct ChunkLayout {
  struct Column {
    std::int64_t offset = 0;  // plain: of the value in a record; stacked: of the frames in the chunk
    std::int64_t bytes = 0;   // size of the value, or of one frame
    std::int32_t stack = 1;
    Padding padding = Padding::kZero;
    std::int32_t capacity = 0;  // stacked: frames
    // For stacked columns, within a record. newest: int64, the number of the newest frame at the
    // time when the row was stored. deltas: `stack` bytes, how far each of the row's frames lies
    // before that newest frame, or kNoFrame.
    std::int64_t newest_offset = 0;
    std::int64_t deltas_offset = 0;
  };
  static constexpr std::uint8_t kNoFrame = 255;  // a frame of zeros

  ChunkLayout(std::vector<ColumnSpec> specs, std::int32_t chunk_rows);

  std::vector<ColumnSpec> specs;
  std::vector<Column> columns;
  bool has_stacks = false;
  std::int64_t flags_offset = 0;  // in a record
  std::int64_t row_bytes = 0;     // from one record to the next
  std::int32_t chunk_rows = 0;
  std::int64_t chunk_bytes = 0;
};

}  // namespace rollouts::replay
