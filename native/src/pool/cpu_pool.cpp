// SPDX-License-Identifier: Apache-2.0
#include "rollouts/pool/cpu_pool.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

// The number of forks between the first process and this one. A pool made at another number has no
// threads in this process.
std::atomic<int> fork_generation{0};

int CurrentForkGeneration() {
  // set once, by the first pool, because the handler stays as long as the process
  static const int registered = pthread_atfork(
      nullptr, nullptr, [] { fork_generation.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return fork_generation.load(std::memory_order_relaxed);
}

SpaceSpec StoredAction(const SpaceSpec& action) {
  SpaceSpec stored = action;
  if (stored.n > 0) stored.dtype = DType::kInt32;  // Discrete actions are kept as int32
  return stored;
}

std::vector<std::shared_ptr<const EngineTallies>> TalliesOf(const EnvBatch& envs) {
  std::vector<std::shared_ptr<const EngineTallies>> tallies;
  envs.ListTallies(tallies);
  return tallies;
}

}  // namespace

// Hands out rows to one chunk. Synchronous: the places of its environments in the send;
// asynchronous: the next free rows.
class CpuPool::ChunkRows final : public RowSource {
 public:
  ChunkRows(CpuPool& pool, const Chunk& chunk)
      : pool_(pool),
        next_(chunk.first_row),
        timer_(pool.stats_, chunk.participant, chunk.envs, pool.commands_.data(),
               pool.synchronous(), chunk.whole_round) {}

  RowSource::Rows Take(std::int32_t count) override {
    const std::int32_t batch = pool_.options_.batch_size;
    if (pool_.synchronous()) {
      // a round has one buffer, and an environment's row is its place in the send
      BatchBuffer* buffer = pool_.buffers_.Of(pool_.recv_sequence_.load(std::memory_order_acquire));
      const RowSource::Rows rows{buffer->target(), next_, count, buffer};
      next_ += count;
      return rows;
    }
    std::int64_t row = pool_.next_row_.load(std::memory_order_relaxed);
    std::int32_t taken;
    do {
      // takes no more than the buffer has left: the caller takes the rest in another call
      taken = static_cast<std::int32_t>(std::min<std::int64_t>(count, batch - row % batch));
      // acquires what the takers of earlier rows saw: that this row's buffer is open
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
      ledger_(options.num_envs, options.env_id_offset),
      buffers_(spec_,
               {.rows = options.batch_size,
                .with_final_obs = options.rules.autoreset == AutoresetMode::kSameStep,
                .out_of_order = !synchronous()},
               // every row in flight has an open buffer; one more may be half received
               options.num_envs / options.batch_size + 3),
      scheduler_(*this, {.num_envs = options.num_envs,
                         .num_threads = options.num_threads,
                         .synchronous = synchronous(),
                         .step_cost_ns = spec_.step_cost_ns,
                         .together = spec_.together,
                         .pin_cpus = options.pin_cpus}),
      stats_(options.num_envs, options.num_threads + 1, spec_.step_cost_ns, TalliesOf(*envs_)) {
  try {
    scheduler_.Start();
  } catch (...) {
    // joined here, because no destructor runs for a pool whose constructor threw
    Close();
    throw;
  }
}

CpuPool::~CpuPool() { Close(); }

void CpuPool::MakeEnvs(EnvRange envs) {
  envs_->Make(envs.first, envs.count);
  for (std::int32_t env = envs.first; env < envs.first + envs.count; ++env) {
    EpisodeClock& clock = envs_->clock(env);
    clock.env_id = static_cast<std::uint32_t>(env + options_.env_id_offset);
    clock.Seed(options_.seed);
  }
}

void CpuPool::RunChunk(const Chunk& chunk) {
  ChunkRows rows(*this, chunk);
  envs_->Run(chunk.envs, CurrentWork(), rows);
}

void CpuPool::CheckUsable() const {
  if (closed()) throw ClosedError("the pool is closed; make a new one with make_vec");
  if (CurrentForkGeneration() != fork_generation_) {
    throw ProtocolError(
        "this pool was made before the process forked and its threads did not come along; make "
        "the pool in the process that steps it (multiprocessing: use the 'spawn' method)");
  }
}

// Unchecked, because clang does not follow a constructor that throws after it released its lock.
CpuPool::OpenLock::OpenLock(const CpuPool& pool, Mutex& mutex) ROLLOUTS_UNCHECKED : mutex_(mutex) {
  pool.CheckUsable();
  mutex.Lock();
  try {
    pool.CheckUsable();
  } catch (...) {
    mutex.Unlock();
    throw;
  }
}

void CpuPool::AddFailure(std::int32_t env, const std::string& message) {
  stats_.AddError();
  failures_.Add({env + options_.env_id_offset, message});
}

void CpuPool::Close() {
  // stopped first: from here on calls are refused, and waiting ones see that the pool is closed
  scheduler_.Stop();
  if (CurrentForkGeneration() != fork_generation_) {
    // in a forked child, where the threads do not exist
    scheduler_.Abandon();
    return;
  }
  done_event_.Notify();

  // joins without the locks of send and recv: a Recv that comes now must not wait for slow
  // environments
  const MutexLock close_lock(close_mutex_);
  scheduler_.Join();

  // moved out under the locks, and destroyed after they are released
  std::vector<std::shared_ptr<BatchBuffer>> buffers;
  std::unique_ptr<EnvBatch> envs;
  {
    const MutexLock recv_lock(recv_mutex_);
    const MutexLock send_lock(send_mutex_);
    buffers = buffers_.Clear();
    envs = std::move(envs_);
  }
  for (const auto& buffer : buffers) buffer->users.reset();
}

std::int32_t CpuPool::num_in_flight() const {
  const MutexLock lock(send_mutex_);
  return ledger_.num_in_flight();
}

std::int64_t CpuPool::buffer_bytes() const {
  const MutexLock lock(send_mutex_);
  return buffers_.bytes();
}

}  // namespace rollouts
