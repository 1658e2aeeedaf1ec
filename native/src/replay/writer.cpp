// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rollouts/support/errors.h"

namespace rollouts::replay {

Writer::Writer(std::shared_ptr<ReplayStore> store, std::vector<ItemKind> kinds,
               std::int64_t history_rows)
    : store_(std::move(store)),
      episodes_(kinds, history_rows, store_->layout().specs.at(0).value_bytes()),
      pending_(kinds.size()) {
  if (kinds.size() != store_->num_tables()) throw SpecError("kinds are not one for each table");
  counts.cut_away.resize(kinds.size());
  for (std::size_t table = 0; table < kinds.size(); ++table) {
    most_priority_ = std::min(most_priority_, store_->table(table).most_priority());
  }
}

void Writer::FindStreams(std::span<const std::int64_t> env_ids) {
  // may throw, so it comes before anything has changed
  const std::int64_t num_new = episodes_.Find(env_ids, streams_);
  ranges_.clear();
  for (const std::int64_t stream : streams_) {
    // consecutive streams are compared and copied as one block
    if (ranges_.empty() || ranges_.back().first + ranges_.back().count != stream) {
      ranges_.push_back({stream, 0});
    }
    ++ranges_.back().count;
  }
  if (num_new == 0) return;
  // streams have the same numbers here and in the store
  if (store_->AddStreams(num_new) != episodes_.size()) {
    throw ProtocolError("streams were added to the store behind its writer");
  }
  episodes_.Grow(env_ids, streams_);
}

void Writer::AwaitReset(std::span<const std::int64_t> env_ids, std::span<std::uint8_t> awaits) {
  FindStreams(env_ids);
  for (std::size_t b = 0; b < awaits.size(); ++b) {
    awaits[b] = episodes_.open(streams_[b]).awaits_reset;
  }
}

// --- adding ------------------------------------------------------------------------------

void Writer::Add(const NewSteps& steps) {
  FindStreams(steps.env_ids);
  CutBroken(steps.columns[0].data);
  Append(steps);
  Remember(steps.next_obs);
}

void Writer::AddStep(const NewSteps& step, const StepMarks& marks) {
  FindStreams(step.env_ids);
  CutBroken(step.columns[0].data);
  Append(step);
  Remember(step.next_obs);
  for (std::size_t b = 0; b < streams_.size(); ++b) {
    Episodes::Open& open = episodes_.open(streams_[b]);
    const bool ended = step.ended && step.ended[b];
    const bool failed = marks.failed && marks.failed[b];
    // the user resets the environment next, and the observation then is not known yet
    if (marks.mode == Autoreset::kDisabled && ended) open.is_known = 0;
    if (failed) {
      counts.episodes_cut += open.is_open;
      episodes_.Cut(streams_[b], -1, pending_);
    }
    if (marks.mode == Autoreset::kNextStep) {
      // a reset that fails is followed by another one
      open.awaits_reset = failed || (ended && (!step.valid || step.valid[b]));
    }
  }
}

void Writer::Remember(const std::uint8_t* next_obs) {
  const auto bytes = static_cast<std::size_t>(episodes_.obs_bytes());
  for (const Range& range : ranges_) {
    const std::size_t size = bytes * static_cast<std::size_t>(range.count);
    std::memcpy(episodes_.next_obs(range.first), next_obs, size);
    next_obs += size;
  }
  for (const std::int64_t stream : streams_) episodes_.open(stream).is_known = 1;
}

void Writer::CutBroken(const std::uint8_t* obs) {
  const auto bytes = static_cast<std::size_t>(episodes_.obs_bytes());
  cut_.clear();
  const auto differs = [&](std::int64_t stream, const std::uint8_t* begin, std::size_t size) {
    return std::memcmp(episodes_.next_obs(stream), begin, size) != 0;
  };
  for (const Range& range : ranges_) {
    // most often all observations are those that followed the step before
    const std::size_t size = bytes * static_cast<std::size_t>(range.count);
    const std::int64_t count = differs(range.first, obs, size) ? range.count : 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t stream = range.first + i;
      // there is nothing to compare with before the first step or after a cut
      if (!episodes_.open(stream).is_known) continue;
      if (differs(stream, obs + i * episodes_.obs_bytes(), bytes)) cut_.push_back(stream);
    }
    obs += size;
  }
  if (cut_.empty()) return;
  // most often the environment was reset without this writer's knowledge
  Complete(cut_, /*is_broken=*/true);
  // one flag, so that the owner need not check every table after each step
  for (const std::int64_t count : counts.cut_away) counts.has_cut_away |= count > 0;
}

void Writer::Append(const NewSteps& steps) {
  const std::size_t count = static_cast<std::size_t>(steps.steps) * streams_.size();
  AppendBatch batch;
  batch.streams = streams_;
  batch.steps = steps.steps;
  batch.columns = steps.columns;
  batch.ended = steps.ended;
  batch.valid = steps.valid;
  if (steps.final_obs) {
    batch.final.resize(steps.columns.size());
    batch.final[0] = {steps.final_obs, steps.columns[0].whole_stack};
  }

  // marks rows that begin an episode because the one before was cut
  first_.assign(count, 0);
  for (std::size_t b = 0; b < streams_.size(); ++b) {
    // the first valid row of each stream, anywhere in the rollout
    if (!episodes_.open(streams_[b]).is_cut) continue;
    for (std::size_t i = b; i < count; i += streams_.size()) {
      if (steps.valid && !steps.valid[i]) continue;
      first_[i] = 1;
      batch.first = first_.data();
      break;
    }
  }
  // all rows or none: an exception here leaves episodes and items as they were
  rows_.resize(count);
  store_->Append(batch, rows_);

  // recorded row by row, so that a rollout gives the same items as its steps one by one
  for (std::size_t i = 0, b = 0; i < count; ++i, b = b + 1 < streams_.size() ? b + 1 : 0) {
    if (rows_[i] < 0) continue;
    if (steps.priorities || episodes_.has_priorities()) {
      // set for rows without a priority, too: else the ring would keep the priority of an old row
      const double none = std::numeric_limits<double>::quiet_NaN();
      episodes_.SetPriority(streams_[b], rows_[i], steps.priorities ? steps.priorities[i] : none);
    }
    const bool ended = steps.ended && steps.ended[i];
    episodes_.AppendedRow(streams_[b], rows_[i], ended, steps.priority, pending_);
    ++counts.produced;
  }
  // the newest version ever, because rollouts of several workers come out of order
  std::int64_t seen = policy_version.load();
  while (seen < steps.policy_version &&
         !policy_version.compare_exchange_weak(seen, steps.policy_version)) {
  }
}

// --- cutting -----------------------------------------------------------------------------

void Writer::EndEpisodes(std::optional<std::span<const std::int64_t>> env_ids) {
  std::vector<std::int64_t> streams;
  if (!env_ids) {
    for (std::int64_t stream = 0; stream < episodes_.size(); ++stream) streams.push_back(stream);
  } else {
    for (const std::int64_t env_id : *env_ids) {
      const std::int64_t stream = episodes_.StreamOf(env_id);
      // an environment that was never seen has no episode to end
      if (stream >= 0) streams.push_back(stream);
    }
    std::ranges::sort(streams);
    // a stream that is listed twice ends once
    streams.erase(std::ranges::unique(streams).begin(), streams.end());
  }
  Complete(streams, /*is_broken=*/false);
}

void Writer::Complete(std::span<const std::int64_t> streams, bool is_broken) {
  // the observation after the last step completes that step
  const auto bytes = static_cast<std::size_t>(episodes_.obs_bytes());
  std::vector<std::int64_t> whole;
  cut_obs_.clear();
  for (const std::int64_t stream : streams) {
    const Episodes::Open& open = episodes_.open(stream);
    // in other streams the last step has no next observation, and is left out
    if (!open.is_open || !open.is_known) continue;
    whole.push_back(stream);
    const std::uint8_t* const obs = episodes_.next_obs(stream);
    cut_obs_.insert(cut_obs_.end(), obs, obs + bytes);
  }
  rows_.assign(whole.size(), -1);
  if (!whole.empty()) {
    AppendBatch batch;
    batch.streams = whole;
    batch.columns.resize(store_->layout().columns.size());
    batch.columns[0] = {cut_obs_.data(), store_->layout().specs[0].stacked()};
    // a final row has zeros for actions and rewards, which nobody reads
    batch.is_final = true;
    store_->Append(batch, rows_);
  }
  std::size_t next = 0;
  for (const std::int64_t stream : streams) {
    Episodes::Open& open = episodes_.open(stream);
    const bool is_whole = next < whole.size() && whole[next] == stream;
    const std::int64_t final_row = is_whole ? rows_[next++] : -1;
    if (open.is_open) {
      ++counts.episodes_cut;
      const std::int64_t end = is_whole ? final_row : open.end;
      if (is_broken) episodes_.CountCutAway(stream, end, counts.cut_away);
    }
    episodes_.Cut(stream, final_row, pending_);
    // the next step begins an episode, and is compared with nothing
    open.is_known = 0;
    open.awaits_reset = 0;
  }
}

// --- inserting ---------------------------------------------------------------------------

std::int64_t Writer::Insert(std::size_t table, Clock::time_point deadline) {
  PendingItems& pending = pending_.at(table);
  const std::size_t count = pending.size();
  if (count == 0) return 0;
  // written by Insert and read by nobody: samples return their keys
  keys_.resize(count);
  const auto rest = [&](const auto& column) { return std::span(column).subspan(pending.taken); };
  ReplayStore::Runs runs = store_->NewRuns();
  store_->Refer(table, rest(pending.stream), rest(pending.start), rest(pending.length), rest(pending.at),
                runs);
  store_->Insert(table, runs, rest(pending.priority), deadline, keys_);
  // the rest stays pending, and the next call references it anew
  pending.Take(runs.taken());
  return static_cast<std::int64_t>(runs.taken());
}

std::int64_t Writer::InsertNow() {
  std::int64_t inserted = 0;
  for (std::size_t table = 0; table < pending_.size(); ++table) {
    // with a deadline in the past, items that are not admitted now stay pending
    inserted += Insert(table, Clock::time_point::min());
  }
  return inserted;
}

std::int64_t Writer::num_pending() const {
  std::int64_t total = 0;
  for (const PendingItems& items : pending_) total += static_cast<std::int64_t>(items.size());
  return total;
}

void Writer::Load(Episodes::Saved saved, std::vector<PendingItems> pending) {
  if (pending.size() != pending_.size()) {
    throw SpecError("the saved replay buffer has pending items of another number of tables");
  }
  // throws where the state does not fit, and nothing has changed then
  episodes_.Load(std::move(saved));
  pending_ = std::move(pending);
}

}  // namespace rollouts::replay
