// SPDX-License-Identifier: Apache-2.0
// Chunks of consecutive rows of one stream, with reference counts of the items and streams that
// need them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "rollouts/replay/column.h"

namespace rollouts::replay {

// The bound on column memory was reached.
struct StoreFullError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A chunk, which only the writer of its stream writes. The rows of an item were written before the
// item was inserted, and never change. `next`, first_row and Frames::first may be read by any
// thread that holds references on this chunk and the next.
struct alignas(kCacheLine) Chunk {
  std::uint8_t* data = nullptr;
  std::atomic<std::int64_t> refs{0};
  Chunk* next = nullptr;
  std::int64_t stream = 0;
  std::int64_t number = 0;     // in its stream
  std::int64_t first_row = 0;  // in its stream
  std::int32_t num_rows = 0;
  std::int32_t spare_refs = 0;  // part of `refs` that the stream keeps for items to come
  struct Frames {
    std::int64_t first = 0;  // number of the first frame of a stacked column
    std::int32_t count = 0;
  };
  std::vector<Frames> frames;  // per column
};

// The record of one of a chunk's rows; `place` counts from the chunk's first row.
inline std::uint8_t* RecordOf(const ChunkLayout& layout, const Chunk& chunk, std::int64_t place) {
  return chunk.data + place * layout.row_bytes;
}

// Memory of one allocation, in RAM or in a file.
class Slab {
 public:
  Slab(std::int64_t bytes, int file, std::int64_t file_offset);
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  std::uint8_t* data() const { return data_; }

 private:
  std::uint8_t* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

// Hands out chunks, and takes back those without references. Thread-safe. Chunks are never given
// back to the system before the end: a store in its steady state allocates nothing.
class ChunkAllocator {
 public:
  // max_bytes 0: no bound. `path` not empty: the memory is a new file there, which is removed with
  // the store; throws SpecError where the file cannot be made.
  ChunkAllocator(const ChunkLayout& layout, std::int64_t max_bytes, const std::string& path);
  ~ChunkAllocator();

  // An empty chunk with one reference, which the caller holds. Throws StoreFullError beyond
  // max_bytes.
  Chunk* Take();
  static void Ref(Chunk* chunk) { chunk->refs.fetch_add(1, std::memory_order_relaxed); }
  // Drops references; the chunk is free again once the last is dropped.
  void Unref(Chunk* chunk, std::int64_t count = 1) {
    if (chunk->refs.fetch_sub(count, std::memory_order_acq_rel) == count) GiveBack(chunk);
  }

  // Raises the bound by `chunks`, or lowers it again; has no effect where there is no bound.
  void Spare(std::int64_t chunks);

  std::int64_t num_used() const;
  std::int64_t num_allocated() const;

 private:
  void GiveBack(Chunk* chunk);
  void Grow();

  const ChunkLayout& layout_;
  const std::int64_t max_chunks_;  // 0: no bound
  const std::string path_;
  int file_ = -1;

  mutable std::mutex mutex_;  // guards what follows; a leaf of the lock order
  std::int64_t spare_ = 0;  // chunks beyond max_chunks_ that are allowed
  std::int64_t file_bytes_ = 0;
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::uint8_t* fresh_ = nullptr;  // the rest of the last slab
  std::int64_t fresh_chunks_ = 0;
  std::deque<Chunk> chunks_;
  std::vector<Chunk*> free_;
};

// A run of consecutive rows, with a reference on each chunk that holds its rows or frames.
struct RowRun {
  Chunk* first = nullptr;
  std::int32_t num_chunks = 0;
  std::int32_t length = 0;
  std::int64_t stream = 0;
  std::int64_t start = 0;
  std::int32_t at = 0;  // the row that an item is about, counted from `start`

  void Ref() const {
    Chunk* chunk = first;
    for (std::int32_t i = 0; i < num_chunks; ++i) {
      ChunkAllocator::Ref(chunk);
      if (i + 1 < num_chunks) chunk = chunk->next;
    }
  }
  void Unref(ChunkAllocator& allocator) const {
    Chunk* chunk = first;
    for (std::int32_t i = 0; i < num_chunks; ++i) {
      Chunk* const next = i + 1 < num_chunks ? chunk->next : nullptr;
      allocator.Unref(chunk);
      chunk = next;
    }
  }
};

// The record of one of a run's rows, or of another row in the run's chunks.
inline std::uint8_t* RecordOfRow(const ChunkLayout& layout, const RowRun& run, std::int64_t row) {
  // the first chunks of a run may hold none of its rows, only frames or a goal
  const Chunk* chunk = run.first;
  for (std::int32_t i = 1; i < run.num_chunks && row >= chunk->next->first_row; ++i) {
    chunk = chunk->next;
  }
  return RecordOf(layout, *chunk, row - chunk->first_row);
}

}  // namespace rollouts::replay
