// SPDX-License-Identifier: Apache-2.0
// Sent and claimed work; scheduler_threads.cpp has the workers.
#include "rollouts/pool/scheduler.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "timing.h"

namespace rollouts {
namespace {

// The most environments of one claim, whose list lies on a stack.
constexpr std::int32_t kMaxChunk = 1024;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
// The number of rows of a one-byte array in a cache line.
constexpr std::int32_t kRowsPerLine = 64;
// The number of rows from which sharing them out is faster than processing all of them alone.
constexpr std::int32_t kSharedRows = 8192;
// The time between two checks for signals.
constexpr std::chrono::milliseconds kPollInterval{50};

std::vector<std::int32_t> Indices(std::int32_t count) {
  std::vector<std::int32_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// Gives each thread whole cache lines of the one-byte arrays, if there are enough.
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
  // reserves room for all, so that sending allocates nothing
  inline_envs_.reserve(settings.num_envs);
}

std::int32_t Scheduler::ChunkSize(std::int32_t sent) const {
  // an engine's step is worth a claim of its own; an engine that steps several at once claims as
  // many
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

// True for rounds that the caller of Recv is to run alone.
bool Scheduler::IsCheap(std::int64_t count) const { return count * step_cost_ns_ < kInlineNs; }

// True for rounds that are run as one chunk. Engines may take seconds to begin an episode: their
// chunks are small, so that deadlines and signals are checked between them.
bool Scheduler::RunsInline(std::int64_t count) const {
  return IsCheap(count) || (num_workers_ == 0 && light_);
}

void Scheduler::Push(std::span<const std::int32_t> envs, std::int64_t pending) {
  const auto count = static_cast<std::int32_t>(envs.size());
  if (synchronous_) {
    // cheap rounds wait for Recv, whose caller runs them
    const auto kept = static_cast<std::int64_t>(inline_envs_.size());
    if (pending == kept && RunsInline(pending + count)) {
      inline_envs_.insert(inline_envs_.end(), envs.begin(), envs.end());
      return;
    }
    // the queue position of the round's row 0, so that later positions give rows
    round_position_.store(queue_.pushed() - (pending - kept), std::memory_order_release);
    // too much work for the caller alone: the environments that it kept come first, in the order
    // sent
    queue_.Push(inline_envs_);
    inline_envs_.clear();
  }
  // a claim may span several sends, so the queue counts, too; in asynchronous mode all environments
  // in flight count, because they keep other threads busy
  const auto beside = together_ > 1 ? synchronous_ ? queue_.size() : pending : 0;
  chunk_.store(ChunkSize(static_cast<std::int32_t>(beside) + count), std::memory_order_relaxed);
  queue_.Push(envs);
  // the caller of an asynchronous Recv steps cheap ones itself, without waking a thread
  if (!reserve_ || !IsCheap(queue_.size())) work_event_.Notify();
  if (queue_.size() > reserve_limit_) reserve_event_.Notify();
}

void Scheduler::PushAll() {
  if (RunsInline(std::ssize(all_envs_))) {
    whole_inline_ = true;
    return;
  }
  // publishes the round, whose commands, actions and buffer are written by now
  ranges_.Begin();
  work_event_.Notify();
}

bool Scheduler::ForAllRows(const RowTask& task) {
  const auto num_rows = static_cast<std::int32_t>(all_envs_.size());
  if (!synchronous_ || num_workers_ == 0 || num_rows < kSharedRows) return task(0, num_rows);
  // the same ranges as in a step, so that each row is handled by the thread that steps it
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
  // all is claimed; every claim is completed even if the pool is closed meanwhile
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
  // the task may not exist any more after this
  const std::int32_t done = shared_done_.fetch_add(envs.count, std::memory_order_acq_rel);
  if (done + envs.count == std::ssize(all_envs_)) shared_event_.Notify();
}

void Scheduler::WorkUntil(Clock::time_point deadline, const std::function<bool()>& enough) {
  // with an engine's threads busy, the caller of an asynchronous Recv would be one thread too many
  if (!synchronous_ && !light_) return;
  RunInline();
  while (!enough() && RunOne(CallerParticipant()) && !stopped() && Clock::now() < deadline) {
  }
}

// Runs the cheap rounds that wait for the caller.
void Scheduler::RunInline() {
  if (!whole_inline_ && inline_envs_.empty()) return;
  runner_.RunChunk({.participant = CallerParticipant(),
                    .envs = whole_inline_ ? all_envs() : inline_envs_,
                    .whole_round = whole_inline_});
  // cleared only after the run, because the chunk may refer to inline_envs_
  whole_inline_ = false;
  inline_envs_.clear();
}

// Claims and runs one chunk; false when there was none.
bool Scheduler::RunOne(std::int32_t participant) {
  // the limit of an earlier round does no harm: a participant steps whatever it has claimed
  const EnvRange range = ranges_.TryClaim(participant, claim_.load(std::memory_order_relaxed));
  if (range.count > 0) {
    // the ranges may belong to a task
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
  // a part of a round, or asynchronous: environments are taken from the queue one by one
  std::int32_t storage[kMaxChunk];
  const std::int32_t limit = chunk_.load(std::memory_order_relaxed);
  const WorkQueue::Claim claim = queue_.TryClaim({storage, static_cast<std::size_t>(limit)});
  if (claim.count == 0) return false;
  // synchronous rows are queue positions, counted from the position of the round's row 0
  runner_.RunChunk(
      {.participant = participant,
       .envs = {storage, static_cast<std::size_t>(claim.count)},
       .first_row = claim.position - round_position_.load(std::memory_order_acquire)});
  return true;
}

}  // namespace rollouts
