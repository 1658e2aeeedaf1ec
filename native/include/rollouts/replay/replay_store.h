// SPDX-License-Identifier: Apache-2.0
// Steps of many streams, stored once, and tables of items that refer to them.
//
// Lock order: state_mutex_; claims_mutex_; a table's mutex (several: in the order of the tables);
// ChunkAllocator's mutex. WorkerThreads' mutexes are taken with none of these held. No lock is held
// while a caller waits for a rate limiter, except the mutex of that limiter's table, which the wait
// releases.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "rollouts/replay/chunk.h"
#include "rollouts/replay/column.h"
#include "rollouts/replay/gather.h"
#include "rollouts/replay/stream.h"
#include "rollouts/replay/table.h"
#include "rollouts/replay/worker_threads.h"

namespace rollouts::replay {

class StateSnapshot;

struct StoreOptions {
  std::int64_t num_streams = 0;
  std::int32_t chunk_rows = 64;
  std::int64_t history_rows = 256;  // new items may refer to at least this many of the last rows
  std::int64_t max_bytes = 0;       // bound of column memory; 0: none
  std::int32_t num_threads = 1;     // threads that gather, the caller included
  std::string path = {};            // a file for the column memory; empty: RAM
};

// Steps to append, T rows of B streams each. Arrays are (T, B, ...), contiguous, and borrowed
// for the call.
struct AppendBatch {
  struct Values {
    const std::uint8_t* data = nullptr;  // null: zeros
    bool whole_stack = false;
  };
  std::span<const std::int64_t> streams;  // B, each once
  std::int64_t steps = 1;                 // T
  std::vector<Values> columns;            // (T, B, ...)
  std::vector<Values> final;              // (K, ...): of the final rows, in the order of `ended`
  const std::uint8_t* first = nullptr;    // (T, B); null: none
  const std::uint8_t* ended = nullptr;    // (T, B); null: none
  const std::uint8_t* valid = nullptr;    // (T, B); null: all
  bool is_final = false;                  // all rows are final ones: kFinalRow
};

struct MemoryUse {
  std::int64_t used_chunks = 0;
  std::int64_t allocated_chunks = 0;
};

// Thread-safe, but for one rule: a stream is appended to and referred to by one thread at a
// time; a second one gets a ProtocolError.
class ReplayStore {
 public:
  // Throws SpecError.
  ReplayStore(std::vector<ColumnSpec> columns, const std::vector<TableSpec>& tables,
              const StoreOptions& options);
  ~ReplayStore();

  // Returns the id of the first new stream.
  std::int64_t AddStreams(std::int64_t count);
  std::int64_t num_streams() const;

  // Appends the rows and writes their numbers, -1 for those that are not valid, to `rows` (T, B).
  // On StoreFullError the streams are as they were.
  void Append(const AppendBatch& batch, std::span<std::int64_t> rows);
  // The oldest row that an item may start at, and the number of the next row.
  void StreamRows(std::span<const std::int64_t> streams, std::span<std::int64_t> oldest,
                  std::span<std::int64_t> next);
  void EndStreams(std::span<const std::int64_t> streams);

  // Throws SpecError for an unknown name.
  std::size_t TableIndex(const std::string& name) const;
  Table& table(std::size_t index) { return *tables_[index]; }
  std::size_t num_tables() const { return tables_.size(); }

  // The rows of new items, referenced. The references are dropped with the object, unless a table
  // took them.
  class Runs {
   public:
    explicit Runs(ChunkAllocator& allocator) : allocator_(allocator) {}
    ~Runs();
    Runs(const Runs&) = delete;
    Runs& operator=(const Runs&) = delete;
    std::span<const RowRun> rest() const { return std::span(runs_).subspan(taken_); }
    std::size_t taken() const { return taken_; }
    void Take(std::size_t count) { taken_ += count; }

   private:
    friend class ReplayStore;
    ChunkAllocator& allocator_;
    std::vector<RowRun> runs_;
    std::size_t taken_ = 0;
    std::uint64_t generation_ = 0;
  };
  Runs NewRuns() { return Runs(allocator_); }
  // Throws SpecError for rows that are not there (any more). `ats`: RowRun::at of each run.
  void Refer(std::size_t table, std::span<const std::int64_t> streams,
             std::span<const std::int64_t> starts, std::span<const std::int32_t> lengths,
             std::span<const std::int32_t> ats, Runs& runs);
  // Inserts the rest of the runs, as Table::Insert does, and writes their keys; runs.taken() counts
  // them.
  void Insert(std::size_t table, Runs& runs, std::span<const double> priorities,
              std::optional<Clock::time_point> deadline, std::span<std::int64_t> keys);

  // Writes the rows of sampled items and drops their references.
  void Gather(const GatherPlan& plan, std::vector<Sampled>& batch,
              std::span<std::uint8_t* const> out);
  void Drop(std::vector<Sampled>& batch);

  // The whole store, with a version and a checksum: see store_state.cpp. Load throws SpecError, and
  // leaves the store as it was, for bytes that were not saved by a store with these columns, tables
  // and chunk_rows.
  std::vector<std::uint8_t> SaveState();
  std::unique_ptr<StateSnapshot> Snapshot();  // the same in pieces
  void LoadState(std::span<const std::uint8_t> state);

  void Close();
  bool closed() const { return closed_.load(); }

  const ChunkLayout& layout() const { return layout_; }
  MemoryUse memory() const { return {allocator_.num_used(), allocator_.num_allocated()}; }

 private:
  class Claims;

  void CheckOpen(const char* call) const;
  // Needs claims_mutex_ held. Throws SpecError for an id that no stream has, ProtocolError for a
  // claimed stream.
  Stream& Unclaimed(const char* call, std::int64_t id) const;
  void AppendClaimed(const AppendBatch& batch, std::span<Stream* const> streams,
                     std::span<std::int64_t> rows);
  RowRun ReferChecked(const Stream& stream, std::size_t item, std::int64_t start,
                      std::int32_t length, std::int32_t at);

  const ChunkLayout layout_;
  const StoreOptions options_;
  ChunkAllocator allocator_;
  std::vector<std::unique_ptr<Table>> tables_;
  WorkerThreads threads_;
  std::atomic<bool> closed_{false};

  // Held shared while streams are claimed and used; held exclusively while streams are added and
  // states are saved and loaded.
  mutable std::shared_mutex state_mutex_;
  std::vector<std::unique_ptr<Stream>> streams_;  // guarded by state_mutex_
  // Guards is_claimed_, and the content of streams that are not claimed.
  std::mutex claims_mutex_;
  std::vector<std::uint8_t> is_claimed_;  // by stream: a thread appends to it
};

}  // namespace rollouts::replay
