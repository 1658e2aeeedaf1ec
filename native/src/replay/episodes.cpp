// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/episodes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "rollouts/support/errors.h"

namespace rollouts::replay {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

[[noreturn]] void ThrowEnvId(std::int64_t env_id, const char* why) {
  throw SpecError("env_id " + std::to_string(env_id) + " " + why +
                  ", expected (B,) numbers of at least 0 without repeats: add joined rollouts of "
                  "one environment one after the other");
}

}  // namespace

void PendingItems::Take(std::size_t count) {
  taken += count;
  // the rest is not moved to the front: mostly all items are taken at once, and then the memory is
  // reused
  if (taken < stream.size()) return;
  taken = 0;
  stream.clear();
  start.clear();
  length.clear();
  at.clear();
  priority.clear();
}

Episodes::Episodes(std::vector<ItemKind> kinds, std::int64_t history_rows, std::int64_t obs_bytes)
    : kinds_(std::move(kinds)), history_rows_(history_rows), obs_bytes_(obs_bytes) {}

// --- streams -----------------------------------------------------------------------------

std::int64_t Episodes::Find(std::span<const std::int64_t> env_ids,
                            std::vector<std::int64_t>& streams) {
  // a writer is mostly called with the same environments again
  if (std::ranges::equal(env_ids, last_env_ids_)) {
    streams = last_streams_;
    return 0;
  }
  std::unordered_map<std::int64_t, std::int64_t> seen;
  seen.reserve(env_ids.size());
  std::int64_t num_new = 0;
  streams.clear();
  for (const std::int64_t env_id : env_ids) {
    if (env_id < 0) ThrowEnvId(env_id, "is negative");
    // only numbers are chosen here: Grow makes the streams, so an exception before that changes
    // nothing
    const std::int64_t known = StreamOf(env_id);
    streams.push_back(known >= 0 ? known : size() + num_new++);
    if (!seen.emplace(env_id, streams.back()).second) ThrowEnvId(env_id, "is there twice");
  }
  if (num_new == 0) {
    // remembered only once all are known: numbers of new streams are valid after Grow
    last_env_ids_.assign(env_ids.begin(), env_ids.end());
    last_streams_ = streams;
  }
  return num_new;
}

void Episodes::Grow(std::span<const std::int64_t> env_ids, std::span<const std::int64_t> streams) {
  const std::lock_guard<std::mutex> lock(env_id_mutex_);
  for (std::size_t b = 0; b < env_ids.size(); ++b) {
    if (streams[b] < size()) continue;
    stream_of_.emplace(env_ids[b], streams[b]);
    env_id_.push_back(env_ids[b]);
    open_.emplace_back();
  }
  next_start_.resize(open_.size() * kinds_.size(), 0);
  next_obs_.resize(open_.size() * static_cast<std::size_t>(obs_bytes_), 0);
  if (has_priorities_) priority_.resize(open_.size() * static_cast<std::size_t>(history_rows_), kNaN);
  // stored last, so that another thread that reads this number finds as many env_ids
  num_known_.store(size(), std::memory_order_release);
}

std::int64_t Episodes::StreamOf(std::int64_t env_id) const {
  const auto found = stream_of_.find(env_id);
  return found == stream_of_.end() ? -1 : found->second;
}

std::vector<std::int64_t> Episodes::env_ids() const {
  const std::lock_guard<std::mutex> lock(env_id_mutex_);
  return env_id_;
}

// --- items -------------------------------------------------------------------------------

void Episodes::AppendedRow(std::int64_t stream, std::int64_t row, bool ended, double priority,
                           std::span<PendingItems> pending) {
  Open& open = this->open(stream);
  if (!open.is_open) {
    open.begin = row;
    // each table has its own kind of items, and its own start of the next item
    for (std::size_t table = 0; table < kinds_.size(); ++table) NextStart(stream, table) = row;
  }
  open.is_cut = 0;
  open.is_open = !ended;
  // the final row follows an episode's last step
  open.end = ended ? row + 1 : row;
  Make(stream, {open.begin, open.end, ended}, priority, pending);
}

void Episodes::Cut(std::int64_t stream, std::int64_t final_row, std::span<PendingItems> pending) {
  Open& open = this->open(stream);
  if (open.is_open) {
    // the final row completes the last step; without it the episode ends one step earlier
    if (final_row >= 0) open.end = final_row;
    Make(stream, {open.begin, open.end, true}, kNaN, pending);
  }
  open.is_open = 0;
  // the store keeps the rows, because items of theirs may still wait to be inserted
  open.is_cut = 1;
}

void Episodes::CountCutAway(std::int64_t stream, std::int64_t end,
                            std::span<std::int64_t> counts) const {
  const Open& open = open_[static_cast<std::size_t>(stream)];
  for (std::size_t table = 0; table < kinds_.size(); ++table) {
    const std::int64_t start = next_start_[static_cast<std::size_t>(stream) * kinds_.size() + table];
    counts[table] += NumCutAway(kinds_[table], {open.begin, end, true}, start);
  }
}

void Episodes::Make(std::int64_t stream, const EpisodePart& part, double priority,
                    std::span<PendingItems> pending) {
  for (std::size_t table = 0; table < kinds_.size(); ++table) {
    std::int64_t& next = NextStart(stream, table);
    next = MakeItems(kinds_[table], part, next, [&](std::int64_t start, std::int32_t rows, std::int32_t at) {
      // the priority of the step at which the item begins, if that step was given one
      const double with = std::isnan(priority) ? PriorityAt(stream, start + at) : priority;
      pending[table].Push(stream, start, rows, at, with);
    });
  }
}

// --- priorities --------------------------------------------------------------------------

void Episodes::SetPriority(std::int64_t stream, std::int64_t row, double priority) {
  if (!has_priorities_) {
    has_priorities_ = true;
    // allocated for all streams once the first priority is set, so that most buffers never have
    // this array
    priority_.assign(open_.size() * static_cast<std::size_t>(history_rows_), kNaN);
  }
  priority_[static_cast<std::size_t>(stream * history_rows_ + row % history_rows_)] = priority;
}

double Episodes::PriorityAt(std::int64_t stream, std::int64_t row) const {
  if (!has_priorities_) return kNaN;
  return priority_[static_cast<std::size_t>(stream * history_rows_ + row % history_rows_)];
}

// --- saved states ------------------------------------------------------------------------

Episodes::Saved Episodes::Save() const {
  return {env_ids(), open_, next_start_, next_obs_, priority_, history_rows_};
}

void Episodes::Load(Saved saved) {
  const std::size_t count = saved.env_id.size();
  // all checks come before anything is replaced
  std::unordered_map<std::int64_t, std::int64_t> stream_of;
  for (std::size_t stream = 0; stream < count; ++stream) {
    if (!stream_of.emplace(saved.env_id[stream], static_cast<std::int64_t>(stream)).second) {
      throw SpecError("the saved replay buffer has an env_id twice");
    }
  }
  const auto width = static_cast<std::size_t>(saved.history_rows);
  if (saved.open.size() != count || saved.next_start.size() != count * kinds_.size() ||
      saved.next_obs.size() != count * static_cast<std::size_t>(obs_bytes_) ||
      (!saved.priority.empty() && (width == 0 || saved.priority.size() != count * width))) {
    throw SpecError("the saved replay buffer has arrays of streams that do not fit each other");
  }
  // row numbers are below this, so that no sum of them overflows
  constexpr std::int64_t kMostRows = std::int64_t{1} << 62;
  for (const Open& open : saved.open) {
    if (open.begin < 0 || open.end < 0 || open.end >= kMostRows) {
      throw SpecError("the saved replay buffer has a row below 0, or one that no stream comes to");
    }
  }
  const auto is_no_row = [](std::int64_t row) { return row < 0 || row >= kMostRows; };
  if (std::ranges::any_of(saved.next_start, is_no_row)) {
    throw SpecError("the saved replay buffer has an item that begins below row 0, or behind all rows");
  }
  for (std::size_t i = 0; i < saved.next_start.size(); ++i) {
    const Open& open = saved.open[i / kinds_.size()];
    // as after MakeItems: all items before this start were made
    if (open.is_open && open.end - saved.next_start[i] >= kinds_[i % kinds_.size()].steps) {
      throw SpecError("the saved replay buffer has an episode whose items were left out");
    }
  }
  std::vector<double> priority;
  if (!saved.priority.empty()) {
    // the saved ring may have another width; only in open episodes can items still begin
    priority.assign(count * static_cast<std::size_t>(history_rows_), kNaN);
    for (std::size_t stream = 0; stream < count; ++stream) {
      const Open& open = saved.open[stream];
      // rows that both rings have
      const std::int64_t kept = std::min(history_rows_, saved.history_rows);
      const std::int64_t oldest = std::max({open.begin, open.end - kept + 1, std::int64_t{0}});
      for (std::int64_t row = oldest; row <= open.end; ++row) {
        priority[stream * history_rows_ + row % history_rows_] =
            saved.priority[stream * saved.history_rows + row % saved.history_rows];
      }
    }
  }
  const std::lock_guard<std::mutex> lock(env_id_mutex_);
  stream_of_ = std::move(stream_of);
  open_ = std::move(saved.open);
  next_start_ = std::move(saved.next_start);
  next_obs_ = std::move(saved.next_obs);
  has_priorities_ = !saved.priority.empty();
  priority_ = std::move(priority);
  // Find's last result belongs to the former streams
  last_env_ids_.clear();
  last_streams_.clear();
  env_id_ = std::move(saved.env_id);
  num_known_.store(size(), std::memory_order_release);
}

}  // namespace rollouts::replay
