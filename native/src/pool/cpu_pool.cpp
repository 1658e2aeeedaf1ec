// SPDX-License-Identifier: Apache-2.0
#include "rollouts/pool/cpu_pool.h"

#include <pthread.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "timing.h"

namespace rollouts {
namespace {

// Most that one claim takes: a worker's list of what it claimed lies on its stack.
constexpr std::int32_t kMaxChunk = 1024;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
// Rows of one-byte arrays that share a cache line.
constexpr std::int32_t kRowsPerLine = 64;

// How many forks lie between the first process and this one: a pool of another generation has no
// threads here.
std::atomic<int> fork_generation{0};

int CurrentForkGeneration() {
  // the handler stays for the process' life, so it is set once, by the first pool
  static const int registered = pthread_atfork(
      nullptr, nullptr, [] { fork_generation.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return fork_generation.load(std::memory_order_relaxed);
}

SpaceSpec StoredAction(const SpaceSpec& action) {
  SpaceSpec stored = action;
  if (stored.n > 0) stored.dtype = DType::kInt32;  // Discrete actions rest as int32
  return stored;
}

// Whole cache lines of the one-byte arrays to each thread, if there are enough.
std::int32_t RangeGranule(const EnvSpec& spec, const PoolOptions& options) {
  const bool enough = options.num_envs >= options.num_threads * kRowsPerLine;
  return spec.step_cost_ns < kChunkNs && enough ? kRowsPerLine : 1;
}

}  // namespace

// Hands out rows to one chunk. Synchronous: the rows of its queue positions;
// asynchronous: the next free ones.
class CpuPool::ChunkRows final : public RowSource {
 public:
  // `whole`: the chunk is of a round that PushAll began.
  ChunkRows(CpuPool& pool, std::int32_t participant, std::span<const std::int32_t> envs,
            std::int64_t first_row, bool whole)
      : pool_(pool),
        next_(first_row),
        timer_(pool.stats_, participant, envs, pool.commands_.data(), pool.synchronous(), whole) {}

  RowSource::Rows Take(std::int32_t count) override {
    const std::int32_t batch = pool_.options_.batch_size;
    if (pool_.synchronous()) {
      // a round has one buffer, and a row is a place in what was sent
      BatchBuffer* buffer = pool_.buffers_.Of(pool_.recv_sequence_.load(std::memory_order_acquire));
      const RowSource::Rows rows{buffer->target(), next_, count, buffer};
      next_ += count;
      return rows;
    }
    std::int64_t row = pool_.next_row_.load(std::memory_order_relaxed);
    std::int32_t taken;
    do {
      // no more than its buffer has left: the caller asks again for the rest
      taken = static_cast<std::int32_t>(std::min<std::int64_t>(count, batch - row % batch));
      // acquire what the takers of earlier rows saw: that this row's buffer is open
    } while (!pool_.next_row_.compare_exchange_weak(row, row + taken, std::memory_order_acq_rel,
                                                    std::memory_order_relaxed));
    BatchBuffer* buffer = pool_.buffers_.Of(row / batch);
    return {buffer->target(), row % batch, taken, buffer};
  }

  void Finish(const RowSource::Rows& rows) override {
    timer_.Finish(rows.count);
    pool_.FinishRows(*static_cast<BatchBuffer*>(rows.buffer), rows.first, rows.count);
  }

  void Fail(std::int32_t env, const std::string& message) override {
    pool_.AddFailure(env, message);
  }

 private:
  CpuPool& pool_;
  std::int64_t next_;
  StepStats::ChunkTimer timer_;
};

CpuPool::CpuPool(std::unique_ptr<EnvBatch> envs, const PoolOptions& options)
    : options_(options),
      envs_(std::move(envs)),
      spec_(envs_->spec()),
      action_bytes_(StoredAction(spec_.action).bytes()),
      fork_generation_(CurrentForkGeneration()),
      actions_(static_cast<std::size_t>(action_bytes_ * options.num_envs)),
      commands_(options.num_envs, Command::kStep),
      started_(options.num_envs, 0),
      in_flight_(options.num_envs),
      all_envs_(options.num_envs),
      queue_(options.num_envs),
      buffers_(spec_,
               {.rows = options.batch_size,
                .with_final_obs = options.rules.autoreset == AutoresetMode::kSameStep,
                .out_of_order = !synchronous()},
               // every row in flight has an open buffer, and one may be half received
               options.num_envs / options.batch_size + 3),
      ranges_(options.num_envs, options.num_threads, RangeGranule(spec_, options)),
      whole_chunk_(ChunkSize(options.num_envs)),
      reserve_limit_(HasReserve() ? kReserveNs / std::max(spec_.step_cost_ns, 1) : kNever),
      stats_(options.num_envs, options.num_threads + 1, spec_.step_cost_ns) {
  std::iota(all_envs_.begin(), all_envs_.end(), 0);
  // room for all, so that Send allocates nothing
  inline_envs_.reserve(options.num_envs);
  try {
    StartWorkers();
  } catch (...) {
    // no destructor runs for what was not made: the threads that did start are joined here
    Close();
    throw;
  }
}

CpuPool::~CpuPool() { Close(); }

void CpuPool::CheckUsable() const {
  if (closed()) throw ClosedError("the pool is closed; make a new one with make_vec");
  if (CurrentForkGeneration() != fork_generation_) {
    throw ProtocolError(
        "this pool was made before the process forked and its threads did not come along; make "
        "the pool in the process that steps it (multiprocessing: use the 'spawn' method)");
  }
}

// Locks, and throws when the pool was closed meanwhile: what the lock guards is gone then.
std::unique_lock<std::mutex> CpuPool::LockOpen(std::mutex& mutex) const {
  CheckUsable();
  std::unique_lock lock(mutex);
  CheckUsable();
  return lock;
}

std::string CpuPool::Describe(std::int32_t env) const {
  return "env_id " + std::to_string(env + options_.env_id_offset);
}

// True for environments of which the caller of an asynchronous Recv steps some, too: beside an
// engine's threads it would be one too many.
bool CpuPool::CallerWorks() const { return spec_.step_cost_ns < kChunkNs; }

// True for rounds that the caller of Recv runs alone.
bool CpuPool::IsCheap(std::int64_t count) const { return count * spec_.step_cost_ns < kInlineNs; }

// Engines may take seconds to begin an episode: chunk by chunk, deadlines and signals are seen.
bool CpuPool::RunsInline(std::int64_t count) const {
  return IsCheap(count) || (threads_.empty() && spec_.step_cost_ns < kChunkNs);
}

std::int32_t CpuPool::ChunkSize(std::int32_t sent) const {
  const std::int64_t cost = std::max(spec_.step_cost_ns, 1);
  // an engine's step is worth a claim of its own
  if (cost >= kChunkNs) return 1;
  const std::int64_t worthwhile = (kChunkNs + cost - 1) / cost;
  const std::int64_t chunk = std::max<std::int64_t>(sent / (4 * options_.num_threads), worthwhile);
  // whole cache lines of the one-byte arrays, so that threads do not share them,
  // unless that would leave threads without work
  const std::int64_t lines = (chunk + kRowsPerLine - 1) / kRowsPerLine * kRowsPerLine;
  const bool enough = lines * options_.num_threads <= sent;
  return static_cast<std::int32_t>(std::min<std::int64_t>(enough ? lines : chunk, kMaxChunk));
}

void CpuPool::Seed(std::int32_t env, std::uint64_t seed) {
  const auto lock = LockOpen(send_mutex_);
  if (InFlight(env)) {
    throw ProtocolError(Describe(env) + " is in flight; call recv before you seed it");
  }
  envs_->clock(env).Seed(seed);
}

// Runs the cheap rounds that Send left for the caller. Called with recv_mutex_ held.
void CpuPool::RunInline() {
  if (!whole_inline_ && inline_envs_.empty()) return;
  const std::span<const std::int32_t> envs = whole_inline_ ? all_envs_ : inline_envs_;
  ChunkRows rows(*this, CallerParticipant(), envs, 0, whole_inline_);
  envs_->Run(envs, CurrentWork(), rows);
  const std::lock_guard lock(send_mutex_);
  // only now: `envs` may refer to inline_envs_
  whole_inline_ = false;
  inline_envs_.clear();
}

// Lets the caller of Recv or Drain work until `enough()` or nothing is left; at least
// one chunk, so that a pool without threads moves on. Called with recv_mutex_ held.
void CpuPool::WorkUntil(Clock::time_point deadline, const std::function<bool()>& enough) {
  RunInline();
  while (!enough() && RunChunk(CallerParticipant()) && !closed() && Clock::now() < deadline) {
  }
}

// Claims and runs one chunk; false when there was none.
bool CpuPool::RunChunk(std::int32_t participant) {
  const EnvRange range = ranges_.TryClaim(participant, whole_chunk_);
  if (range.count > 0) {
    // the ranges may be those of ForAllRows, in which actions are copied and nothing is stepped
    if (const RowTask* task = row_task_.load(std::memory_order_acquire)) {
      RunRowTask(*task, range);
      return true;
    }
    const std::span<const std::int32_t> envs = all_envs().subspan(range.first, range.count);
    ChunkRows rows(*this, participant, envs, range.first, /*whole=*/true);
    envs_->Run(envs, CurrentWork(), rows);
    return true;
  }
  // less than a whole round, or asynchronous: environments come one by one out of the queue
  std::int32_t storage[kMaxChunk];
  const std::int32_t limit = chunk_.load(std::memory_order_relaxed);
  const WorkQueue::Claim claim = queue_.TryClaim({storage, static_cast<std::size_t>(limit)});
  if (claim.count == 0) return false;
  const std::span<const std::int32_t> envs{storage, static_cast<std::size_t>(claim.count)};
  // synchronous rows are queue positions, counted from the round's first; else Take ignores them
  const std::int64_t first_row = claim.position - round_position_.load(std::memory_order_acquire);
  ChunkRows rows(*this, participant, envs, first_row, /*whole=*/false);
  envs_->Run(envs, CurrentWork(), rows);
  return true;
}

void CpuPool::WorkerLoop(std::int32_t worker) {
  const std::int32_t participant = WorkerParticipant(worker);
  // the last worker wakes for long queues alone: the caller of Recv works in its place
  const bool reserve = HasReserve() && worker == options_.num_threads - 1;
  Event& event = reserve ? reserve_event_ : work_event_;
  const std::int64_t least = reserve ? reserve_limit_ : 0;
  const auto has_work = [&] { return closed() || !ranges_.Empty() || queue_.size() > least; };
  while (true) {
    // the hour is no limit: nothing is lost when it wakes for nothing
    event.WaitUntil(has_work, Clock::now() + std::chrono::hours(1), kSpin);
    if (closed()) return;
    RunChunk(participant);
  }
}

void CpuPool::Close() {
  // first of all: from here on calls are refused, and those who wait find out why
  stop_.store(true, std::memory_order_release);
  if (CurrentForkGeneration() != fork_generation_) {
    // a forked child: the threads exist only in the parent, so they cannot be joined, and
    // destroying a thread that was not joined would end the process
    if (!threads_.empty()) new std::vector<std::thread>(std::move(threads_));
    return;
  }
  work_event_.Notify();
  reserve_event_.Notify();
  done_event_.Notify();

  // join without the pool's locks: a Recv that comes now must not wait for slow environments
  const std::lock_guard close_lock(close_mutex_);
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }

  // take everything out under the locks, destroy it after them
  std::vector<std::shared_ptr<BatchBuffer>> buffers;
  std::unique_ptr<EnvBatch> envs;
  {
    const std::scoped_lock lock(recv_mutex_, send_mutex_);
    threads_.clear();
    buffers = buffers_.Clear();
    envs = std::move(envs_);
  }
  for (const auto& buffer : buffers) buffer->users.reset();
}

std::int32_t CpuPool::num_in_flight() const {
  const std::lock_guard lock(send_mutex_);
  return static_cast<std::int32_t>(sent_ - received_);
}

std::int64_t CpuPool::buffer_bytes() const {
  const std::lock_guard lock(send_mutex_);
  return buffers_.bytes();
}

std::span<std::uint8_t> CpuPool::StateBytes(std::int32_t env) {
  const auto lock = LockOpen(send_mutex_);
  // a worker may be writing the bytes of one in flight
  if (env < 0 || env >= options_.num_envs || InFlight(env)) {
    throw ProtocolError(Describe(env) + " is unknown or in flight");
  }
  return envs_->StateBytes(env);
}

}  // namespace rollouts
