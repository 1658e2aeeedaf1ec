// SPDX-License-Identifier: Apache-2.0
// Work that is sent and claimed; scheduler_threads.cpp has the workers.
#include "rollouts/pool/scheduler.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "timing.h"

namespace rollouts {
namespace {

// Most environments of one claim: their list lies on a stack.
constexpr std::int32_t kMaxChunk = 1024;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
// Rows of one-byte arrays that share a cache line.
constexpr std::int32_t kRowsPerLine = 64;
// Rows for which it takes longer to look at all of them than to share them out.
constexpr std::int32_t kSharedRows = 8192;
// Signals are looked at this often.
constexpr std::chrono::milliseconds kPollInterval{50};

std::vector<std::int32_t> Indices(std::int32_t count) {
  std::vector<std::int32_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// Whole cache lines of the one-byte arrays to each thread, if there are enough.
std::int32_t RangeGranule(const Scheduler::Settings& settings) {
  const bool enough = settings.num_envs >= settings.num_threads * kRowsPerLine;
  return settings.step_cost_ns < kChunkNs && enough ? kRowsPerLine : 1;
}

}  // namespace

Scheduler::Scheduler(ChunkRunner& runner, const Settings& settings)
    : runner_(runner),
      num_threads_(settings.num_threads),
      num_workers_(NumWorkers(settings.num_threads, settings.synchronous)),
      synchronous_(settings.synchronous),
      step_cost_ns_(settings.step_cost_ns),
      together_(settings.together),
      pin_cpus_(settings.pin_cpus),
      light_(settings.step_cost_ns < (settings.together > 1 ? kGroupNs : kChunkNs)),
      reserve_(!synchronous_ && light_),
      reserve_limit_(reserve_ ? kReserveNs / std::max<std::int64_t>(step_cost_ns_, 1) : kNever),
      all_envs_(Indices(settings.num_envs)),
      ranges_(settings.num_envs, num_threads_, RangeGranule(settings)),
      whole_chunk_(ChunkSize(settings.num_envs)),
      claim_(whole_chunk_),
      queue_(settings.num_envs) {
  // room for all, so that sending allocates nothing
  inline_envs_.reserve(settings.num_envs);
}

std::int32_t Scheduler::ChunkSize(std::int32_t sent) const {
  // an engine's step is worth a claim of its own, or those that it takes at once
  const std::int32_t together = std::clamp(sent / num_threads_, 1, together_);
  if (!light_) return together;
  const std::int64_t cost = std::max<std::int64_t>(step_cost_ns_, 1);
  const std::int64_t worthwhile = (kChunkNs + cost - 1) / cost;
  const std::int64_t chunk =
      std::max<std::int64_t>({sent / (4 * num_threads_), worthwhile, together});
  // whole cache lines of the one-byte arrays, so that threads do not share them,
  // unless that would leave threads without work
  const std::int64_t lines = (chunk + kRowsPerLine - 1) / kRowsPerLine * kRowsPerLine;
  const bool enough = lines * num_threads_ <= sent;
  return static_cast<std::int32_t>(std::min<std::int64_t>(enough ? lines : chunk, kMaxChunk));
}

// True for rounds that the caller of Recv runs alone.
bool Scheduler::IsCheap(std::int64_t count) const { return count * step_cost_ns_ < kInlineNs; }

// True for rounds in one piece. Chunks of engines, which may take seconds to begin an episode, let
// deadlines and signals be seen.
bool Scheduler::RunsInline(std::int64_t count) const {
  return IsCheap(count) || (num_workers_ == 0 && light_);
}

void Scheduler::Push(std::span<const std::int32_t> envs, std::int64_t pending) {
  const auto count = static_cast<std::int32_t>(envs.size());
  if (synchronous_) {
    // cheap rounds wait for Recv, which runs them on the caller's thread
    const auto kept = static_cast<std::int64_t>(inline_envs_.size());
    if (pending == kept && RunsInline(pending + count)) {
      inline_envs_.insert(inline_envs_.end(), envs.begin(), envs.end());
      return;
    }
    // row 0 of the round, as a queue position, so that positions tell rows
    round_position_.store(queue_.pushed() - (pending - kept), std::memory_order_release);
    // too much for the caller alone: what it kept so far comes first, as it was sent
    queue_.Push(inline_envs_);
    inline_envs_.clear();
  }
  // what is taken at once may have been sent by several calls; asynchronous, other threads are busy
  // with the rest of what is in flight, and leave this to those that are not
  const auto beside = together_ > 1 ? synchronous_ ? queue_.size() : pending : 0;
  chunk_.store(ChunkSize(static_cast<std::int32_t>(beside) + count), std::memory_order_relaxed);
  queue_.Push(envs);
  // what is cheap the caller of an asynchronous Recv steps itself, without waking anybody
  if (!reserve_ || !IsCheap(queue_.size())) work_event_.Notify();
  if (queue_.size() > reserve_limit_) reserve_event_.Notify();
}

void Scheduler::PushAll() {
  if (RunsInline(std::ssize(all_envs_))) {
    whole_inline_ = true;
    return;
  }
  // publishes the round: commands, actions and buffer are written by now
  ranges_.Begin();
  work_event_.Notify();
}

bool Scheduler::ForAllRows(const RowTask& task) {
  const auto num_rows = static_cast<std::int32_t>(all_envs_.size());
  if (!synchronous_ || num_workers_ == 0 || num_rows < kSharedRows) return task(0, num_rows);
  // the ranges of a step, so that each row is where the thread is that steps it
  return Share({[&](std::int32_t, EnvRange rows) { return task(rows.first, rows.count); }, whole_chunk_},
               [] {});
}

void Scheduler::ForAllEnvs(const EnvTask& task, std::int32_t chunk, bool alone,
                           const std::function<void()>& poll) {
  const auto num_envs = static_cast<std::int32_t>(all_envs_.size());
  if (num_workers_ == 0 || alone) return task(CallerParticipant(), {0, num_envs});
  const auto run = [&](std::int32_t participant, EnvRange envs) {
    task(participant, envs);
    return true;
  };
  Share({run, chunk}, poll);
}

// Shares a task with all participants; true where it returned true for each of them.
bool Scheduler::Share(const SharedTask& task, const std::function<void()>& poll) {
  shared_done_.store(0, std::memory_order_relaxed);
  shared_good_.store(true, std::memory_order_relaxed);
  claim_.store(task.chunk, std::memory_order_relaxed);
  shared_.store(&task, std::memory_order_release);
  ranges_.Begin();
  work_event_.Notify();
  while (true) {
    const EnvRange envs = ranges_.TryClaim(CallerParticipant(), task.chunk);
    if (envs.count == 0) break;
    RunShared(task, CallerParticipant(), envs);
  }
  // all is claimed, and what is claimed gets done even if the pool is closed meanwhile
  const auto all_done = [&] {
    return shared_done_.load(std::memory_order_acquire) == std::ssize(all_envs_);
  };
  while (!shared_event_.WaitUntil(all_done, Clock::now() + kPollInterval, kSpin)) poll();
  claim_.store(whole_chunk_, std::memory_order_relaxed);
  shared_.store(nullptr, std::memory_order_relaxed);  // published by the next Begin
  return shared_good_.load(std::memory_order_relaxed);
}

void Scheduler::RunShared(const SharedTask& task, std::int32_t participant, EnvRange envs) {
  if (!task.run(participant, envs)) shared_good_.store(false, std::memory_order_relaxed);
  // from here on the task may be gone
  const std::int32_t done = shared_done_.fetch_add(envs.count, std::memory_order_acq_rel);
  if (done + envs.count == std::ssize(all_envs_)) shared_event_.Notify();
}

void Scheduler::WorkUntil(Clock::time_point deadline, const std::function<bool()>& enough) {
  // beside an engine's threads the caller of an asynchronous Recv would be one too many
  if (!synchronous_ && !light_) return;
  RunInline();
  while (!enough() && RunOne(CallerParticipant()) && !stopped() && Clock::now() < deadline) {
  }
}

// Runs the cheap rounds that were left for the caller.
void Scheduler::RunInline() {
  if (!whole_inline_ && inline_envs_.empty()) return;
  runner_.RunChunk({.participant = CallerParticipant(),
                    .envs = whole_inline_ ? all_envs() : inline_envs_,
                    .whole_round = whole_inline_});
  // only now: the chunk may refer to inline_envs_
  whole_inline_ = false;
  inline_envs_.clear();
}

// Claims and runs one chunk; false when there was none.
bool Scheduler::RunOne(std::int32_t participant) {
  // a limit of the round before does no harm: who claims takes what it got
  const EnvRange range = ranges_.TryClaim(participant, claim_.load(std::memory_order_relaxed));
  if (range.count > 0) {
    // the ranges may be those of a task
    if (const SharedTask* task = shared_.load(std::memory_order_acquire)) {
      RunShared(*task, participant, range);
      return true;
    }
    runner_.RunChunk({.participant = participant,
                      .envs = all_envs().subspan(range.first, range.count),
                      .first_row = range.first,
                      .whole_round = true});
    return true;
  }
  // less than a whole round, or asynchronous: environments come one by one out of the queue
  std::int32_t storage[kMaxChunk];
  const std::int32_t limit = chunk_.load(std::memory_order_relaxed);
  const WorkQueue::Claim claim = queue_.TryClaim({storage, static_cast<std::size_t>(limit)});
  if (claim.count == 0) return false;
  // synchronous rows are queue positions, counted from the round's first
  runner_.RunChunk(
      {.participant = participant,
       .envs = {storage, static_cast<std::size_t>(claim.count)},
       .first_row = claim.position - round_position_.load(std::memory_order_acquire)});
  return true;
}

}  // namespace rollouts
