// SPDX-License-Identifier: Apache-2.0
// One environment's rows, as one writer appends them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

#include "rollouts/replay/chunk.h"
#include "rollouts/replay/column.h"

namespace rollouts::replay {

// Where the columns of a row to append lie; borrowed for one call.
struct RowSource {
  std::vector<const std::uint8_t*> column;  // null: zeros
  std::vector<std::uint8_t> whole_stack;    // of a stacked column: the value is all its frames
};

// Not thread-safe: who calls anything but the claims has claimed it, or holds the store alone.
class Stream {
 public:
  Stream(const ChunkLayout& layout, ChunkAllocator& allocator, std::int64_t id,
         std::int64_t history_rows);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  bool TryClaim() { return !claimed_.exchange(true, std::memory_order_acquire); }
  void Unclaim() { claimed_.store(false, std::memory_order_release); }

  // Forgets rows that no new item may refer to any more: all but the last `history_rows`.
  void Trim();
  // Appends a row and returns its number. Throws StoreFullError, with nothing appended.
  std::int64_t AppendRow(const RowSource& source, std::uint8_t flags);
  // Where to come back to. Rows of before the mark must not have been trimmed since.
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
  RowRun Refer(std::int64_t start, std::int32_t length) const;

  // For saved states.
  const std::deque<Chunk*>& chunks() const { return chunks_; }
  bool next_is_first() const { return next_is_first_; }
  struct Saved {
    std::int64_t next_row = 0;
    std::int64_t oldest_row = 0;
    std::int64_t next_chunk = 0;
    std::vector<std::int64_t> next_frame;
    bool next_is_first = true;
    std::deque<Chunk*> chunks;  // with a reference each, which the stream takes over
  };
  Saved Save() const;
  void Load(Saved saved);

 private:
  struct StackState {
    std::vector<const std::uint8_t*> frames;  // of the last row; null: zeros
    std::vector<std::int64_t> numbers;        // -1: zeros
  };

  void OpenChunk();
  bool HasRoom() const;
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

  const ChunkLayout& layout_;
  ChunkAllocator& allocator_;
  const std::int64_t id_;
  const std::int64_t history_rows_;
  std::atomic<bool> claimed_{false};

  std::deque<Chunk*> chunks_;  // one reference each; the last one is being written
  std::int64_t next_row_ = 0;
  std::int64_t oldest_row_ = 0;
  std::int64_t next_chunk_ = 0;
  bool next_is_first_ = true;
  std::vector<std::int64_t> next_frame_;  // per column
  std::vector<StackState> stacks_;        // per column; empty where it is plain
};

}  // namespace rollouts::replay
