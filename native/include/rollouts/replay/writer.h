// SPDX-License-Identifier: Apache-2.0
// The writing side of a replay buffer: stores steps as rows of streams, and inserts the items that
// they complete into tables.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rollouts/replay/episodes.h"
#include "rollouts/replay/replay_store.h"

namespace rollouts::replay {

enum class Autoreset : std::int32_t { kNextStep, kSameStep, kDisabled };

// Steps of B environments; arrays are (T, B, ...), contiguous, and borrowed for the call.
struct NewSteps {
  std::span<const std::int64_t> env_ids;        // B
  std::int64_t steps = 1;                       // T
  std::vector<AppendBatch::Values> columns;     // the first one: whole observations
  const std::uint8_t* valid = nullptr;          // null: all
  const std::uint8_t* ended = nullptr;          // steps that a final row follows
  const std::uint8_t* final_obs = nullptr;      // (K, *obs_shape), one for each step that ended
  const std::uint8_t* next_obs = nullptr;       // (B, *obs_shape), after the last step
  const double* priorities = nullptr;           // for the items that begin at each step
  double priority = std::numeric_limits<double>::quiet_NaN();  // for all items completed
  std::int64_t policy_version = 0;              // the newest one
};

// Arguments of AddStep besides the arrays.
struct StepMarks {
  Autoreset mode = Autoreset::kSameStep;
  // (B,); null: none. The episodes of these environments are cut before this step
  const std::uint8_t* failed = nullptr;
};

// Only policy_version, env_ids and num_streams are thread-safe: the owner locks the other calls.
class Writer {
 public:
  // `kinds`: the kind of items of each of the store's tables. The store's first column is the
  // observation.
  Writer(std::shared_ptr<ReplayStore> store, std::vector<ItemKind> kinds,
         std::int64_t history_rows);

  // Writes whether the next step of each environment only resets it; throws for the env_ids as Add
  // does.
  void AwaitReset(std::span<const std::int64_t> env_ids, std::span<std::uint8_t> awaits);

  // Stores steps and makes the items that they complete pending. Where steps do not continue an
  // open episode exactly, bit for bit, the episode is completed with the observation that came
  // after it, and cut. Throws StoreFullError, with none of the steps taken; broken episodes may
  // have been cut then, and the call may be repeated.
  void Add(const NewSteps& steps);
  void AddStep(const NewSteps& step, const StepMarks& marks);
  // Cuts the open episodes of those env_ids that were seen; nullopt: of all. Throws as Add does.
  void EndEpisodes(std::optional<std::span<const std::int64_t>> env_ids);

  // Inserts a table's pending items until the deadline, and returns how many; see Table::Insert.
  std::int64_t Insert(std::size_t table, Clock::time_point deadline);
  // Inserts the pending items of all tables that may be inserted now.
  std::int64_t InsertNow();
  std::int64_t num_pending() const;
  std::span<const PendingItems> pending() const { return pending_; }

  double most_priority() const { return most_priority_; }  // the limit for an item, in all tables
  std::int64_t num_streams() const { return episodes_.num_known(); }
  std::vector<std::int64_t> env_ids() const { return episodes_.env_ids(); }

  struct Counts {
    std::int64_t produced = 0;  // steps
    std::int64_t episodes_cut = 0;
    std::vector<std::int64_t> cut_away;  // by table: items lost because steps did not continue
    bool has_cut_away = false;           // any of them
  };
  Counts counts;
  std::atomic<std::int64_t> policy_version{0};

  // For saved states. Load throws SpecError, with nothing changed.
  Episodes::Saved Save() const { return episodes_.Save(); }
  void Load(Episodes::Saved saved, std::vector<PendingItems> pending);

 private:
  void FindStreams(std::span<const std::int64_t> env_ids);
  void CutBroken(const std::uint8_t* obs);
  void Append(const NewSteps& steps);
  // Cuts the open episodes of `streams`. Where the next observation is known, it is the final row.
  void Complete(std::span<const std::int64_t> streams, bool is_broken);
  void Remember(const std::uint8_t* next_obs);

  const std::shared_ptr<ReplayStore> store_;
  Episodes episodes_;
  std::vector<PendingItems> pending_;  // by table
  double most_priority_ = std::numeric_limits<double>::max();

  // scratch of one call, kept for its memory
  std::vector<std::int64_t> streams_;  // B
  struct Range {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };
  std::vector<Range> ranges_;  // ranges of streams_ that follow each other
  std::vector<std::int64_t> rows_;
  std::vector<std::int64_t> cut_;
  std::vector<std::uint8_t> first_;
  std::vector<std::uint8_t> cut_obs_;
  std::vector<std::int64_t> keys_;
};

}  // namespace rollouts::replay
