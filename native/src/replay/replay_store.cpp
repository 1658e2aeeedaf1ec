// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/replay_store.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

#include "rollouts/support/errors.h"

namespace rollouts::replay {
namespace {

// A stream's next row is prefetched while the rows of the four streams before it are written.
constexpr std::size_t kStreamsAhead = 4;

// Checks the options and returns them, before members are made from them.
StoreOptions Checked(const StoreOptions& options) {
  const auto at_least = [](const char* name, std::int64_t value, std::int64_t least) {
    if (value >= least) return;
    throw SpecError(std::string(name) + " is " + std::to_string(value) + ", expected " +
                    std::to_string(least) + " or more");
  };
  at_least("num_streams", options.num_streams, 0);
  at_least("history_rows", options.history_rows, 1);
  at_least("max_bytes", options.max_bytes, 0);
  at_least("num_threads", options.num_threads, 1);
  return options;
}

}  // namespace

// The streams of one call, claimed until its end.
class ReplayStore::Claims {
 public:
  Claims(ReplayStore& store, const char* call, std::span<const std::int64_t> ids)
      : store_(store), ids_(ids) {
    streams_.reserve(ids.size());
    // claimed under one lock, so that one of two calls that share streams gets all of its streams
    const std::lock_guard<std::mutex> lock(store_.claims_mutex_);
    try {
      for (const std::int64_t id : ids) {
        streams_.push_back(&store_.Unclaimed(call, id));
        store_.is_claimed_[static_cast<std::size_t>(id)] = 1;
      }
    } catch (...) {
      // releases the streams claimed before the refused one, because no destructor will
      GiveUp();
      throw;
    }
  }
  ~Claims() {
    const std::lock_guard<std::mutex> lock(store_.claims_mutex_);
    GiveUp();
  }
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  std::span<Stream* const> all() const { return streams_; }

 private:
  void GiveUp() {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      store_.is_claimed_[static_cast<std::size_t>(ids_[i])] = 0;
    }
  }

  ReplayStore& store_;
  const std::span<const std::int64_t> ids_;
  std::vector<Stream*> streams_;
};

ReplayStore::ReplayStore(std::vector<ColumnSpec> columns, const std::vector<TableSpec>& tables,
                         const StoreOptions& options)
    : layout_(std::move(columns), options.chunk_rows),
      options_(Checked(options)),
      allocator_(layout_, options.max_bytes, options.path),
      threads_(options.num_threads) {
  for (const TableSpec& spec : tables) {
    for (const auto& table : tables_) {
      // calls find a table by its name, so names must differ
      if (table->spec().name == spec.name) {
        throw SpecError("table '" + spec.name + "' is there twice");
      }
    }
    tables_.push_back(std::make_unique<Table>(spec, allocator_));
  }
  AddStreams(options.num_streams);
  // started here, where the caller gave their number: an error in a later sample would be less
  // clear
  threads_.Start();
}

ReplayStore::~ReplayStore() = default;

void ReplayStore::CheckOpen(const char* call) const {
  if (closed()) throw ClosedError(std::string(call) + ": the replay store is closed");
}

void ReplayStore::Close() {
  // set before the tables wake waiting calls, so that no new call begins
  closed_.store(true);
  for (const auto& table : tables_) table->Close();
}

// --- streams -----------------------------------------------------------------------------

Stream& ReplayStore::Unclaimed(const char* call, std::int64_t id) const {
  if (id < 0 || id >= std::ssize(streams_)) {
    throw SpecError(std::string(call) + ": there is no stream " + std::to_string(id) +
                    ", expected 0 to " + std::to_string(std::ssize(streams_) - 1) +
                    "; add_streams makes more");
  }
  if (is_claimed_[static_cast<std::size_t>(id)]) {
    throw ProtocolError(std::string(call) + ": stream " + std::to_string(id) +
                        " is given twice, or another thread writes to it; a stream has one "
                        "writer at a time");
  }
  return *streams_[static_cast<std::size_t>(id)];
}

std::int64_t ReplayStore::AddStreams(std::int64_t count) {
  CheckOpen("add_streams");
  if (count < 0) throw SpecError("add_streams: n is " + std::to_string(count) + ", expected 0 or more");
  // exclusive, because the vectors may be moved
  const std::unique_lock<std::shared_mutex> lock(state_mutex_);
  const std::int64_t first = std::ssize(streams_);
  for (std::int64_t i = 0; i < count; ++i) {
    streams_.push_back(std::make_unique<Stream>(layout_, allocator_, first + i));
  }
  is_claimed_.resize(streams_.size(), 0);
  return first;
}

std::int64_t ReplayStore::num_streams() const {
  const std::shared_lock<std::shared_mutex> lock(state_mutex_);
  return std::ssize(streams_);
}

void ReplayStore::Append(const AppendBatch& batch, std::span<std::int64_t> rows) {
  CheckOpen("append");
  const std::shared_lock<std::shared_mutex> lock(state_mutex_);
  const Claims claims(*this, "append", batch.streams);
  std::vector<Stream::Mark> marks;
  marks.reserve(batch.streams.size());
  for (Stream* const stream : claims.all()) {
    // trimmed before the mark is taken, because Rewind needs the rows before it
    stream->Trim(options_.history_rows);
    marks.push_back(stream->mark());
  }
  try {
    AppendClaimed(batch, claims.all(), rows);
  } catch (...) {
    // a full store refuses the whole call, so that no stream is ahead of the others
    for (std::size_t b = 0; b < marks.size(); ++b) claims.all()[b]->Rewind(marks[b]);
    throw;
  }
}

void ReplayStore::AppendClaimed(const AppendBatch& batch, std::span<Stream* const> streams,
                                std::span<std::int64_t> rows) {
  const std::size_t num_columns = layout_.columns.size();
  RowSource steps;
  RowSource finals;
  steps.columns.reserve(num_columns);
  finals.columns.reserve(num_columns);
  for (std::size_t c = 0; c < num_columns; ++c) {
    const ChunkLayout::Column& column = layout_.columns[c];
    const auto source_of = [&](const AppendBatch::Values& values) {
      // a value of a stacked column is one frame, or all of them
      const std::int64_t stride = column.bytes * (values.whole_stack ? column.stack : 1);
      return RowSource::Column{values.data, stride, values.whole_stack};
    };
    steps.columns.push_back(source_of(batch.columns[c]));
    // a final row has zeros in the columns that were not given for it
    finals.columns.push_back(batch.final.empty() ? RowSource::Column{} : source_of(batch.final[c]));
  }

  std::size_t i = 0;
  for (std::int64_t t = 0; t < batch.steps; ++t) {
    for (std::size_t b = 0; b < streams.size(); ++b, ++i, ++steps.row) {
      const bool valid = !batch.valid || batch.valid[i];
      const bool ended = batch.ended && batch.ended[i];
      Stream& stream = *streams[b];
      streams[std::min(b + kStreamsAhead, streams.size() - 1)]->PrefetchRow();
      const bool first = batch.first && batch.first[i];
      const int flags = (first ? kFirstRow : 0) | (batch.is_final ? kFinalRow : 0);
      rows[i] = valid ? stream.AppendRow(steps, static_cast<std::uint8_t>(flags)) : -1;
      if (!ended) continue;
      // final observations are packed, one for each end, whether or not the row is valid
      if (valid) stream.AppendRow(finals, kFinalRow);
      ++finals.row;
    }
  }
}

void ReplayStore::StreamRows(std::span<const std::int64_t> streams, std::span<std::int64_t> oldest,
                             std::span<std::int64_t> next) {
  const std::shared_lock<std::shared_mutex> lock(state_mutex_);
  // keeps writers from claiming these streams meanwhile
  const std::lock_guard<std::mutex> claims_lock(claims_mutex_);
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const Stream& stream = Unclaimed("stream_rows", streams[i]);
    oldest[i] = stream.oldest_row();
    next[i] = stream.next_row();
  }
}

void ReplayStore::EndStreams(std::span<const std::int64_t> streams) {
  const std::shared_lock<std::shared_mutex> lock(state_mutex_);
  const Claims claims(*this, "end_streams", streams);
  for (Stream* const stream : claims.all()) stream->Forget();
}

// --- items -------------------------------------------------------------------------------

std::size_t ReplayStore::TableIndex(const std::string& name) const {
  std::string list;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    if (tables_[i]->spec().name == name) return i;
    list += (i > 0 ? ", " : "") + tables_[i]->spec().name;
  }
  throw SpecError("there is no table '" + name + "', expected one of " + list);
}

ReplayStore::Runs::~Runs() {
  // the table owns the references of the runs that were inserted
  for (const RowRun& run : rest()) run.Unref(allocator_);
}

void ReplayStore::Refer(std::size_t table, std::span<const std::int64_t> streams,
                        std::span<const std::int64_t> starts,
                        std::span<const std::int32_t> lengths, std::span<const std::int32_t> ats,
                        Runs& runs) {
  CheckOpen("insert");
  const std::shared_lock<std::shared_mutex> lock(state_mutex_);
  // the generation makes Insert refuse these rows after another state is loaded
  runs.generation_ = tables_[table]->generation();
  runs.runs_.reserve(streams.size());
  // streams are not claimed here: an unclaimed stream does not change under this lock
  const std::lock_guard<std::mutex> claims_lock(claims_mutex_);
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const Stream& stream = Unclaimed("insert", streams[i]);
    runs.runs_.push_back(ReferChecked(stream, i, starts[i], lengths[i], ats[i]));
  }
}

RowRun ReplayStore::ReferChecked(const Stream& stream, std::size_t item, std::int64_t start,
                                 std::int32_t length, std::int32_t at) {
  const bool is_there = start >= stream.oldest_row() && start <= stream.next_row() - length;
  if (length >= 1 && is_there && at >= 0 && at < length) {
    RowRun run = stream.Refer(start, length);
    run.at = at;
    return run;
  }
  const std::string of = "insert: item " + std::to_string(item) + " has ";
  if (length < 1) throw SpecError(of + "length " + std::to_string(length) + ", expected 1 or more rows");
  if (is_there) throw SpecError(of + "place " + std::to_string(at) + ", expected one of its rows");
  throw SpecError(of + "rows " + std::to_string(start) + " to " +
                  std::to_string(start + length - 1) + " of stream " +
                  std::to_string(stream.id()) + ", which has rows " +
                  std::to_string(stream.oldest_row()) + " to " +
                  std::to_string(stream.next_row() - 1) +
                  "; history_rows says how long rows can be referred to");
}

void ReplayStore::Insert(std::size_t table, Runs& runs, std::span<const double> priorities,
                         std::optional<Clock::time_point> deadline,
                         std::span<std::int64_t> keys) {
  // no lock of the store is held, because a table may wait long for its limiter
  const std::size_t taken = runs.taken();
  runs.Take(static_cast<std::size_t>(
      tables_[table]->Insert(runs.rest(), priorities.subspan(taken), runs.generation_, deadline,
                             keys.subspan(taken))));
}

void ReplayStore::Gather(const GatherPlan& plan, std::vector<Sampled>& batch,
                         std::span<std::uint8_t* const> out) {
  // runs without a lock, because referenced rows do not change
  plan.GatherAll(batch, out, threads_);
  Drop(batch);
}

void ReplayStore::Drop(std::vector<Sampled>& batch) {
  // the rows of an item that was removed meanwhile are freed with the last reference
  for (const Sampled& sampled : batch) sampled.run.Unref(allocator_);
  batch.clear();
}

}  // namespace rollouts::replay
