// SPDX-License-Identifier: Apache-2.0
// The open part of each environment's stream of rows: its current episode, where the next items
// begin, and the observation that the next step has to begin with.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "rollouts/replay/items.h"

namespace rollouts::replay {

// Items that wait to be inserted into one table, oldest first; a NaN priority stands for the
// highest that the table has seen.
struct PendingItems {
  std::vector<std::int64_t> stream;
  std::vector<std::int64_t> start;
  std::vector<std::int32_t> length;
  std::vector<std::int32_t> at;  // see RowRun
  std::vector<double> priority;
  std::size_t taken = 0;  // how many at the front are no longer pending

  std::size_t size() const { return stream.size() - taken; }
  void Push(std::int64_t of, std::int64_t first, std::int32_t rows, std::int32_t place,
            double with) {
    stream.push_back(of);
    start.push_back(first);
    length.push_back(rows);
    at.push_back(place);
    priority.push_back(with);
  }
  void Take(std::size_t count);
};

// Streams are numbered as in the store, one per env_id, in the order in which they were first seen.
// Not thread-safe, except for env_ids().
class Episodes {
 public:
  // history_rows: items may begin up to this many rows before a stream's newest row. obs_bytes:
  // bytes of one observation.
  Episodes(std::vector<ItemKind> kinds, std::int64_t history_rows, std::int64_t obs_bytes);

  struct Open {
    std::int64_t begin = 0;           // row
    std::int64_t end = 0;             // last row
    std::uint8_t is_open = 0;
    std::uint8_t awaits_reset = 0;    // the next step only resets the environment
    std::uint8_t is_cut = 0;          // the next row begins an episode
    std::uint8_t is_known = 0;        // whether next_obs is the env's next observation
  };

  // Writes the streams of env_ids. New streams get numbers from size() on, and exist after Grow.
  // Returns how many are new. Throws SpecError for an env_id listed twice, or below 0.
  std::int64_t Find(std::span<const std::int64_t> env_ids, std::vector<std::int64_t>& streams);
  void Grow(std::span<const std::int64_t> env_ids, std::span<const std::int64_t> streams);
  // -1 for an env_id that was never seen.
  std::int64_t StreamOf(std::int64_t env_id) const;
  std::int64_t size() const { return std::ssize(open_); }
  Open& open(std::int64_t stream) { return open_[static_cast<std::size_t>(stream)]; }
  std::uint8_t* next_obs(std::int64_t stream) {
    return next_obs_.data() + stream * obs_bytes_;
  }
  std::int64_t obs_bytes() const { return obs_bytes_; }
  std::size_t num_tables() const { return kinds_.size(); }

  // Records a row; if `ended`, a final row follows it. Items that it completes go to `pending`, one
  // entry for each table. All these items get `priority`; if that is NaN, each gets the priority of
  // the step where it begins.
  void AppendedRow(std::int64_t stream, std::int64_t row, bool ended, double priority,
                   std::span<PendingItems> pending);
  // Ends the open episode at its last row, or at the final row `final_row` after it (-1: none).
  void Cut(std::int64_t stream, std::int64_t final_row, std::span<PendingItems> pending);
  // Counts, for each table, the items that are lost by a cut that makes `end` the last row.
  void CountCutAway(std::int64_t stream, std::int64_t end, std::span<std::int64_t> counts) const;

  // Tells if priorities by step were ever set; from then on they are set for each row.
  bool has_priorities() const { return has_priorities_; }
  void SetPriority(std::int64_t stream, std::int64_t row, double priority);

  // Thread-safe: a copy of the env_ids by stream.
  std::vector<std::int64_t> env_ids() const;
  // Thread-safe.
  std::int64_t num_known() const { return num_known_.load(std::memory_order_acquire); }

  // For saved states: arrays by stream; next_start (N, tables), priorities (N, history) or empty.
  struct Saved {
    std::vector<std::int64_t> env_id;
    std::vector<Open> open;
    std::vector<std::int64_t> next_start;
    std::vector<std::uint8_t> next_obs;
    std::vector<double> priority;
    std::int64_t history_rows = 0;  // rows of `priority`
  };
  Saved Save() const;
  // Throws SpecError for an env_id listed twice or sizes that do not fit, with nothing changed.
  void Load(Saved saved);

 private:
  std::int64_t& NextStart(std::int64_t stream, std::size_t table) {
    return next_start_[static_cast<std::size_t>(stream) * kinds_.size() + table];
  }
  double PriorityAt(std::int64_t stream, std::int64_t row) const;
  void Make(std::int64_t stream, const EpisodePart& part, double priority,
            std::span<PendingItems> pending);

  const std::vector<ItemKind> kinds_;  // by table
  const std::int64_t history_rows_;
  const std::int64_t obs_bytes_;

  std::unordered_map<std::int64_t, std::int64_t> stream_of_;  // by env_id
  std::vector<Open> open_;
  std::vector<std::int64_t> next_start_;
  std::vector<std::uint8_t> next_obs_;
  bool has_priorities_ = false;
  std::vector<double> priority_;  // a ring over each stream's last rows
  std::vector<std::int64_t> last_env_ids_;  // the last argument of Find, and its result
  std::vector<std::int64_t> last_streams_;

  mutable std::mutex env_id_mutex_;
  std::vector<std::int64_t> env_id_;  // guarded by env_id_mutex_
  std::atomic<std::int64_t> num_known_{0};
};

}  // namespace rollouts::replay
