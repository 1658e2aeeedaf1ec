// SPDX-License-Identifier: Apache-2.0
// Sending to a CpuPool; cpu_pool.cpp steps and cpu_pool_recv.cpp receives.
#include <algorithm>

#include "rollouts/pool/cpu_pool.h"
#include "timing.h"

namespace rollouts {
namespace {

// Rows for which it takes longer to look at all of them than to share them out.
constexpr std::int32_t kSharedRows = 8192;

}  // namespace

void CpuPool::CheckSend(std::span<const std::int32_t> envs) {
  const auto lock = LockOpen(send_mutex_);
  const bool disabled = options_.rules.autoreset == AutoresetMode::kDisabled;
  // all of a pool at rest: no need to look at each
  if (IsAll(envs) && sent_ == received_ && all_started_ && !disabled) return;
  std::size_t marked = 0;
  std::string problem;
  for (; marked < envs.size(); ++marked) {
    const std::int32_t env = envs[marked];
    if (env < 0 || env >= options_.num_envs) {
      problem = Describe(env) + " in row " + std::to_string(marked) + " is not in this pool: its ids are " +
                std::to_string(options_.env_id_offset) + " to " +
                std::to_string(options_.env_id_offset + options_.num_envs - 1);
    } else if (InFlight(env)) {
      problem = Describe(env) + " in row " + std::to_string(marked) +
                " was sent already and not received since; call recv first";
    } else if (!started_[env]) {
      problem = Describe(env) + " was never reset; call reset() or async_reset() first";
    } else if (disabled && envs_->clock(env).ended) {
      problem = Describe(env) + " in row " + std::to_string(marked) +
                " has ended its episode and autoreset is disabled; reset it with "
                "reset(options={'reset_mask': mask})";
    }
    if (!problem.empty()) break;
    in_flight_[env].store(1, std::memory_order_relaxed);  // finds ids listed twice
  }
  // marks served to find duplicates; Send sets them for good
  for (std::size_t i = 0; i < marked; ++i) in_flight_[envs[i]].store(0, std::memory_order_relaxed);
  if (!problem.empty()) throw ProtocolError(problem);
}

void CpuPool::Send(std::span<const std::int32_t> envs, const BatchView* out) {
  const auto lock = LockOpen(send_mutex_);
  // `out` is one array for the whole round, so nothing else may be in flight beside it
  if (out && !synchronous()) {
    throw ProtocolError("out needs batch_size == num_envs: in asynchronous mode rows are written "
                        "in the order in which environments finish");
  }
  if ((out || redirected_) && sent_ != received_) {
    throw ProtocolError("a send with out must be the only one before the next recv");
  }
  if (IsAll(envs)) {
    // a reset before may have left other commands
    std::fill(commands_.begin(), commands_.end(), Command::kStep);
  } else {
    for (const std::int32_t env : envs) commands_[env] = Command::kStep;
  }
  Push(envs, out);
}

void CpuPool::CheckReset(const std::uint8_t* mask) const {
  const auto lock = LockOpen(send_mutex_);
  CheckResettable(mask);
}

// Called with send_mutex_ held.
void CpuPool::CheckResettable(const std::uint8_t* mask) const {
  if (sent_ != received_) {
    throw ProtocolError(std::to_string(sent_ - received_) +
                        " environments are in flight; call recv before you reset");
  }
  for (std::int32_t env = 0; env < options_.num_envs; ++env) {
    // an environment that is left out shows its observation again, and needs to have one
    if (mask && !mask[env] && !started_[env]) {
      throw ProtocolError(Describe(env) + " was never reset, so reset_mask may not leave it out");
    }
  }
}

void CpuPool::SendReset(const std::uint8_t* mask) {
  const auto lock = LockOpen(send_mutex_);
  CheckResettable(mask);
  for (std::int32_t env = 0; env < options_.num_envs; ++env) {
    // those left out show their observation: a reset returns a row of every environment
    const bool reset = !mask || mask[env];
    commands_[env] = reset ? Command::kReset : Command::kObserve;
    if (reset) started_[env] = 1;
  }
  all_started_ = true;
  Push(all_envs_);
}

// Called with send_mutex_ held.
void CpuPool::Push(std::span<const std::int32_t> envs, const BatchView* out) {
  const auto count = static_cast<std::int32_t>(envs.size());
  if (count == 0) return;
  // a synchronous round is complete when all that was sent is: it may not grow under Recv
  if (synchronous() && receiving_) {
    throw ProtocolError("another thread is in recv; with batch_size == num_envs send and recv take turns");
  }
  // Drain counts all that was sent as received at its end
  if (draining_.load(std::memory_order_relaxed)) {
    throw ProtocolError("another thread resets; send after its reset has returned");
  }
  const std::int64_t pending = sent_ - received_;
  if (synchronous() && pending == 0) {
    // the first send of a round opens its buffer, before any worker may look for it
    const std::int64_t sequence = recv_sequence_.load(std::memory_order_relaxed);
    buffers_.Open(sequence);
    redirected_ = out != nullptr;
    if (out) buffers_.Of(sequence)->Redirect(*out);
    if (IsAll(envs)) {
      PushAll();
      return;
    }
  }
  // from here on InFlight says so, and calls that need them idle refuse
  for (const std::int32_t env : envs) in_flight_[env].store(1, std::memory_order_relaxed);
  stats_.Sent(envs);

  if (synchronous()) {
    sent_ += count;
    // cheap rounds wait for Recv, which runs them on the caller's thread
    const bool inline_so_far = pending == static_cast<std::int64_t>(inline_envs_.size());
    round_rows_.store(static_cast<std::int32_t>(pending) + count, std::memory_order_release);
    if (inline_so_far && RunsInline(pending + count)) {
      inline_envs_.insert(inline_envs_.end(), envs.begin(), envs.end());
      return;
    }
    // row 0 of the round, as a queue position, so that positions tell rows
    const auto not_queued = static_cast<std::int64_t>(inline_envs_.size());
    round_position_.store(queue_.pushed() - (pending - not_queued), std::memory_order_release);
    // too much for the caller alone: what it kept so far comes first, as it was sent
    queue_.Push(inline_envs_);
    inline_envs_.clear();
  } else {
    sent_ += count;
    // all buffers up to that of the last row in flight; rows are numbered for ever
    buffers_.Open((NextReceived() + pending + count - 1) / options_.batch_size);
  }
  chunk_.store(ChunkSize(count), std::memory_order_relaxed);
  queue_.Push(envs);
  // what is cheap the caller of an asynchronous Recv steps itself, without waking anybody
  if (synchronous() || !CallerWorks() || !IsCheap(queue_.size())) work_event_.Notify();
  if (queue_.size() > reserve_limit_) reserve_event_.Notify();
}

// A round of the whole synchronous pool, the usual case: rows are environments, so
// that neither lists nor marks per environment are needed. Called with send_mutex_ held.
void CpuPool::PushAll() {
  sent_ += options_.num_envs;
  whole_round_ = true;
  stats_.SentAll();
  round_rows_.store(options_.num_envs, std::memory_order_release);
  if (RunsInline(options_.num_envs)) {
    whole_inline_ = true;
    return;
  }
  // publishes the round: commands, actions and buffer are written by now
  ranges_.Begin();
  work_event_.Notify();
}

void CpuPool::ForAllRows(const RowTask& task) {
  const std::int32_t num_rows = options_.num_envs;
  if (!synchronous() || NumWorkers(options_) == 0 || num_rows < kSharedRows) {
    task(0, num_rows);
    return;
  }
  // the ranges of a step, so that each row is where the thread is that steps it
  rows_done_.store(0, std::memory_order_relaxed);
  row_task_.store(&task, std::memory_order_release);
  ranges_.Begin();
  work_event_.Notify();
  while (true) {
    const EnvRange rows = ranges_.TryClaim(CallerParticipant(), whole_chunk_);
    if (rows.count == 0) break;
    RunRowTask(task, rows);
  }
  // all is claimed, and what is claimed gets done even if the pool is closed meanwhile
  const auto all_done = [&] { return rows_done_.load(std::memory_order_acquire) == num_rows; };
  while (!done_event_.WaitUntil(all_done, Clock::now() + std::chrono::hours(1), kSpin)) {
  }
  row_task_.store(nullptr, std::memory_order_relaxed);  // published by the next Begin
}

void CpuPool::RunRowTask(const RowTask& task, EnvRange rows) {
  task(rows.first, rows.count);
  // from here on the task may be gone
  const std::int32_t done = rows_done_.fetch_add(rows.count, std::memory_order_acq_rel);
  if (done + rows.count == options_.num_envs) done_event_.Notify();
}

}  // namespace rollouts
