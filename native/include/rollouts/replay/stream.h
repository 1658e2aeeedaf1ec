// SPDX-License-Identifier: Apache-2.0
// One environment's rows, as one writer appends them.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "rollouts/replay/chunk.h"
#include "rollouts/replay/column.h"

namespace rollouts::replay {

// The arrays of rows from which a row is appended, one for each column; borrowed for one call.
struct RowSource {
  struct Column {
    const std::uint8_t* data = nullptr;  // null: zeros
    std::int64_t stride = 0;             // bytes from one row to the next
    bool whole_stack = false;            // a value of a stacked column has all its frames
  };
  std::vector<Column> columns;
  std::int64_t row = 0;

  const std::uint8_t* value(std::size_t column) const {
    const Column& from = columns[column];
    return from.data ? from.data + row * from.stride : nullptr;
  }
};

// A stream. Not thread-safe: its caller has claimed it, or keeps other threads from it.
class alignas(kCacheLine) Stream {
 public:
  Stream(const ChunkLayout& layout, ChunkAllocator& allocator, std::int64_t id);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Forgets rows that no new item may refer to any more: all but the last `history_rows`.
  void Trim(std::int64_t history_rows) {
    if (next_row_ - oldest_row_ <= history_rows) return;
    oldest_row_ = next_row_ - history_rows;
    if (oldest_row_ >= second_chunk_row_) DropChunksBefore(FirstChunkFor(oldest_row_));
  }
  // Appends a row and returns its number. Throws StoreFullError, with nothing appended.
  std::int64_t AppendRow(const RowSource& source, std::uint8_t flags);
  // Prefetches the memory of the next row.
  void PrefetchRow() const;
  // A point that the stream can be set back to. Rows before the mark must not have been trimmed
  // since.
  struct Mark {
    std::int64_t next_row;
    bool next_is_first;
  };
  Mark mark() const { return {next_row_, next_is_first_}; }
  void Rewind(const Mark& mark);
  // Forgets all rows; the next one is the first of an episode.
  void Forget();

  std::int64_t id() const { return id_; }
  std::int64_t oldest_row() const { return oldest_row_; }
  std::int64_t next_row() const { return next_row_; }

  // The run of rows [start, start + length), referenced for the caller. The rows must lie in
  // [oldest_row, next_row).
  RowRun Refer(std::int64_t start, std::int32_t length) const {
    if (layout_.has_stacks || start < last_chunk_->first_row) return ReferChunks(start, length);
    if (last_chunk_->spare_refs-- == 0) TakeSpareRefs(*last_chunk_);
    return {last_chunk_, 1, length, id_, start, 0};
  }

  // For saved states.
  const std::vector<Chunk*>& chunks() const { return chunks_; }
  bool next_is_first() const { return next_is_first_; }
  struct Saved {
    std::int64_t next_row = 0;
    std::int64_t oldest_row = 0;
    std::int64_t next_chunk = 0;
    std::vector<std::int64_t> next_frame;
    bool next_is_first = true;
    std::vector<Chunk*> chunks;  // each with a reference, which the stream takes over
  };
  Saved Save() const;
  void Load(Saved saved);

 private:
  struct StackState {
    std::vector<const std::uint8_t*> frames;  // frames of the last row; null: zeros
    std::vector<std::int64_t> numbers;        // -1: zeros
  };

  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

  void OpenChunk();
  bool HasRoom() const;
  // Takes references in advance, with one atomic operation for many items.
  static void TakeSpareRefs(Chunk& chunk) {
    constexpr std::int32_t kCount = 64;
    chunk.refs.fetch_add(kCount, std::memory_order_relaxed);
    chunk.spare_refs += kCount;
  }
  void Unref(Chunk* chunk) { allocator_.Unref(chunk, 1 + std::exchange(chunk->spare_refs, 0)); }
  RowRun ReferChunks(std::int64_t start, std::int32_t length) const;
  // Call after each change of chunks_.
  void NoteChunks() {
    last_chunk_ = chunks_.empty() ? nullptr : chunks_.back();
    second_chunk_row_ = chunks_.size() > 1 ? chunks_[1]->first_row : kNone;
  }
  void AppendStack(std::size_t column, const std::uint8_t* value, bool first);
  void AppendFrame(std::size_t column, const std::uint8_t* frame, bool first);
  std::int32_t FindShift(std::size_t column, const std::uint8_t* value, bool first) const;
  bool SameFrame(std::size_t column, const std::uint8_t* frame, const std::uint8_t* stored) const;
  void StoreFrame(std::size_t column, std::int32_t place, const std::uint8_t* frame);
  void WriteNumbers(std::size_t column, std::uint8_t* record);
  void ReadStacks();
  std::size_t ChunkOfRow(std::int64_t row) const;
  std::size_t FirstChunkFor(std::int64_t row) const;
  void DropChunksBefore(std::size_t index);

  // one cache line holds what most rows need, because a step of many streams waits for other cache
  // lines already
  bool next_is_first_ = true;
  const ChunkLayout& layout_;
  ChunkAllocator& allocator_;
  const std::int64_t id_;
  Chunk* last_chunk_ = nullptr;           // null: none
  std::int64_t next_row_ = 0;
  std::int64_t oldest_row_ = 0;
  std::int64_t second_chunk_row_ = kNone;  // the first row that is not in the first chunk

  std::vector<Chunk*> chunks_;  // one reference each; the last one is being written
  std::int64_t next_chunk_ = 0;
  std::vector<std::int64_t> next_frame_;  // per column
  std::vector<StackState> stacks_;        // per column; empty where it is plain
};

}  // namespace rollouts::replay
