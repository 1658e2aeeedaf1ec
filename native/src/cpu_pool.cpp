// SPDX-License-Identifier: Apache-2.0
#include "rollouts/pool/cpu_pool.h"

#include <pthread.h>

#include <algorithm>
#include <numeric>
#include <system_error>

namespace rollouts {
namespace {

using std::chrono::microseconds;

// How long a thread spins before it parks: longer than the Python code between
// two steps, shorter than a policy's inference.
constexpr microseconds kSpin{30};
// Rounds of sends that are cheaper than this run on the caller alone.
constexpr std::int64_t kInlineNs = 20'000;
// A chunk is worth claiming when it computes this long.
constexpr std::int64_t kChunkNs = 2'000;
constexpr std::int32_t kMaxChunk = 1024;
// Buffers that a pool keeps without asking whether all of them are needed.
constexpr std::size_t kKeptSlots = 4;
// Rows of one-byte arrays that share a cache line.
constexpr std::int32_t kRowsPerLine = 64;

std::atomic<int> fork_generation{0};

int CurrentForkGeneration() {
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

}  // namespace

// Hands out rows to one chunk. Synchronous: the rows of its queue positions;
// asynchronous: the next free ones.
class CpuPool::Rows final : public RowSource {
 public:
  Rows(CpuPool& pool, std::int64_t first_row) : pool_(pool), next_(first_row) {}

  RowSource::Rows Take(std::int32_t count) override {
    const std::int32_t batch = pool_.options_.batch_size;
    if (pool_.synchronous()) {
      BatchBuffer* buffer = pool_.BufferOf(pool_.recv_sequence_.load(std::memory_order_acquire));
      const RowSource::Rows rows{buffer->view(), next_, count, buffer};
      next_ += count;
      return rows;
    }
    std::int64_t row = pool_.next_row_.load(std::memory_order_relaxed);
    std::int32_t taken;
    do {
      taken = static_cast<std::int32_t>(std::min<std::int64_t>(count, batch - row % batch));
      // acquire what the takers of earlier rows saw: that this row's buffer is open
    } while (!pool_.next_row_.compare_exchange_weak(row, row + taken, std::memory_order_acq_rel,
                                                    std::memory_order_relaxed));
    BatchBuffer* buffer = pool_.BufferOf(row / batch);
    return {buffer->view(), row % batch, taken, buffer};
  }

  void Finish(const RowSource::Rows& rows) override {
    pool_.FinishRows(*static_cast<BatchBuffer*>(rows.buffer), rows.count);
  }

  void Fail(std::int32_t env, const std::string& message) override {
    const std::lock_guard lock(pool_.failure_mutex_);
    pool_.failures_.emplace_back(env + pool_.options_.env_id_offset, message);
    pool_.failed_.store(true, std::memory_order_release);
  }

 private:
  CpuPool& pool_;
  std::int64_t next_;
};

// Says, while it lives, that a thread is in Recv.
class CpuPool::ReceivingFlag {
 public:
  explicit ReceivingFlag(CpuPool& pool) : pool_(pool) { Set(true); }
  ~ReceivingFlag() { Set(false); }

 private:
  void Set(bool value) {
    const std::lock_guard lock(pool_.send_mutex_);
    pool_.receiving_ = value;
  }
  CpuPool& pool_;
};

// Refuses sends while it lives: Drain forgets what is in flight when it ends.
class CpuPool::DrainingFlag {
 public:
  explicit DrainingFlag(CpuPool& pool) : pool_(pool) {
    const std::lock_guard lock(pool_.send_mutex_);
    pool_.draining_.store(true, std::memory_order_seq_cst);
  }
  ~DrainingFlag() { pool_.draining_.store(false, std::memory_order_seq_cst); }

 private:
  CpuPool& pool_;
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
      // every row in flight has an open buffer, and one may be half received
      open_(options.num_envs / options.batch_size + 3),
      whole_next_(options.num_envs) {
  std::iota(all_envs_.begin(), all_envs_.end(), 0);
  inline_envs_.reserve(options.num_envs);
  for (std::int32_t env = 0; env < options.num_envs; ++env) {
    EpisodeClock& clock = envs_->clock(env);
    clock.env_id = static_cast<std::uint32_t>(env + options.env_id_offset);
    clock.Seed(options.seed);
  }
  const std::int32_t workers = options.num_threads - (synchronous() ? 1 : 0);
  try {
    for (std::int32_t i = 0; i < workers; ++i) threads_.emplace_back([this] { WorkerLoop(); });
  } catch (const std::system_error& error) {
    const std::size_t started = threads_.size();
    Close();
    throw SpecError("could not start " + std::to_string(workers) + " threads, only " +
                    std::to_string(started) + " (" + error.what() + "); ask for less num_threads");
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

void CpuPool::Send(std::span<const std::int32_t> envs) {
  const auto lock = LockOpen(send_mutex_);
  for (const std::int32_t env : envs) commands_[env] = Command::kStep;
  Push(envs);
}

void CpuPool::SendReset(const std::uint8_t* mask) {
  const auto lock = LockOpen(send_mutex_);
  if (sent_ != received_) {
    throw ProtocolError(std::to_string(sent_ - received_) +
                        " environments are in flight; call recv before you reset");
  }
  for (std::int32_t env = 0; env < options_.num_envs; ++env) {
    if (mask && !mask[env] && !started_[env]) {
      throw ProtocolError(Describe(env) + " was never reset, so reset_mask may not leave it out");
    }
  }
  for (std::int32_t env = 0; env < options_.num_envs; ++env) {
    const bool reset = !mask || mask[env];
    commands_[env] = reset ? Command::kReset : Command::kObserve;
    if (reset) started_[env] = 1;
  }
  all_started_ |= mask == nullptr;
  Push(all_envs_);
}

// Called with send_mutex_ held.
void CpuPool::Push(std::span<const std::int32_t> envs) {
  const auto count = static_cast<std::int32_t>(envs.size());
  if (count == 0) return;
  if (synchronous() && receiving_) {
    throw ProtocolError("another thread is in recv; with batch_size == num_envs send and recv take turns");
  }
  if (draining_.load(std::memory_order_relaxed)) {
    throw ProtocolError("another thread resets; send after its reset has returned");
  }
  const std::int64_t pending = sent_ - received_;
  if (synchronous() && pending == 0 && IsAll(envs)) {
    PushAll();
    return;
  }
  for (const std::int32_t env : envs) in_flight_[env].store(1, std::memory_order_relaxed);

  if (synchronous()) {
    if (pending == 0) OpenBuffers(recv_sequence_.load(std::memory_order_relaxed));
    sent_ += count;
    // cheap rounds wait for Recv, which runs them on the caller's thread
    const bool inline_so_far = pending == static_cast<std::int64_t>(inline_envs_.size());
    const bool cheap = IsCheap(pending + count);
    round_rows_.store(static_cast<std::int32_t>(pending) + count, std::memory_order_release);
    if (inline_so_far && (cheap || threads_.empty())) {
      inline_envs_.insert(inline_envs_.end(), envs.begin(), envs.end());
      return;
    }
    // row 0 of the round, as a queue position, so that positions tell rows
    const auto not_queued = static_cast<std::int64_t>(inline_envs_.size());
    round_position_.store(queue_.pushed() - (pending - not_queued), std::memory_order_release);
    queue_.Push(inline_envs_);
    inline_envs_.clear();
  } else {
    sent_ += count;
    const std::int64_t last_row =
        sent_ - received_ - 1 + recv_sequence_.load(std::memory_order_relaxed) * options_.batch_size;
    OpenBuffers(last_row / options_.batch_size);
  }
  chunk_.store(ChunkSize(count), std::memory_order_relaxed);
  queue_.Push(envs);
  // asynchronous, too: what is cheap waits for Recv, which is there sooner than a thread wakes
  if (synchronous() || !IsCheap(sent_ - received_)) work_event_.Notify();
}

// A round of the whole synchronous pool, the usual case: rows are environments, so
// that neither lists nor marks per environment are needed. Called with send_mutex_ held.
void CpuPool::PushAll() {
  OpenBuffers(recv_sequence_.load(std::memory_order_relaxed));
  sent_ += options_.num_envs;
  whole_round_ = true;
  round_rows_.store(options_.num_envs, std::memory_order_release);
  if (threads_.empty() || IsCheap(options_.num_envs)) {
    whole_inline_ = true;
    return;
  }
  chunk_.store(ChunkSize(options_.num_envs), std::memory_order_relaxed);
  whole_next_.store(0, std::memory_order_release);
  work_event_.Notify();
}

// True for rounds that the caller of Recv runs alone.
bool CpuPool::IsCheap(std::int64_t count) const { return count * spec_.step_cost_ns < kInlineNs; }

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

// Makes sequences up to `last_sequence` writable. Called with send_mutex_ held.
void CpuPool::OpenBuffers(std::int64_t last_sequence) {
  const bool final_obs = options_.rules.autoreset == AutoresetMode::kSameStep;
  for (; opened_ <= last_sequence; ++opened_) {
    auto slot = std::find_if(slots_.begin(), slots_.end(), [](const Slot& candidate) {
      return !candidate.open && candidate.buffer->Reusable();
    });
    if (slot == slots_.end()) {
      slots_.push_back({std::make_shared<BatchBuffer>(spec_, options_.batch_size, final_obs)});
      slot = slots_.end() - 1;
    } else {
      FreeIdleBuffers(slot);
    }
    slot->open = true;
    slot->buffer->written.store(0, std::memory_order_relaxed);
    open_[opened_ % open_.size()].store(slot->buffer.get(), std::memory_order_release);
  }
}

// Gives memory back after somebody held many batches and dropped them: one idle
// buffer beside `next` is enough. Called with send_mutex_ held; moves `next` along.
void CpuPool::FreeIdleBuffers(std::vector<Slot>::iterator& next) {
  if (slots_.size() <= kKeptSlots) return;
  const BatchBuffer* const keep = next->buffer.get();
  std::int32_t idle = 0;
  std::erase_if(slots_, [&](const Slot& slot) {
    const bool is_idle = slot.buffer.get() != keep && !slot.open && slot.buffer->Reusable();
    if (!is_idle || ++idle == 1) return false;
    slot.buffer->users.reset();  // the users hold the buffer, as the buffer holds them
    return true;
  });
  next = std::find_if(slots_.begin(), slots_.end(),
                      [&](const Slot& slot) { return slot.buffer.get() == keep; });
}

void CpuPool::Seed(std::int32_t env, std::uint64_t seed) {
  const auto lock = LockOpen(send_mutex_);
  if (InFlight(env)) {
    throw ProtocolError(Describe(env) + " is in flight; call recv before you seed it");
  }
  envs_->clock(env).Seed(seed);
}

CpuPool::Received CpuPool::Recv(Clock::time_point deadline) {
  const auto recv_lock = LockOpen(recv_mutex_);
  std::int32_t rows = options_.batch_size;
  const ReceivingFlag receiving(*this);
  {
    const std::lock_guard lock(send_mutex_);
    const std::int64_t pending = sent_ - received_;
    if (synchronous()) rows = static_cast<std::int32_t>(pending);
    if (pending == 0 || pending < rows) {
      throw ProtocolError("recv would never return: it waits for " +
                          std::to_string(options_.batch_size) + " environments and " +
                          std::to_string(pending) + " are in flight; call send or async_reset first");
    }
  }
  const std::int64_t sequence = recv_sequence_.load(std::memory_order_relaxed);
  BatchBuffer* buffer = BufferOf(sequence);
  // the caller works too: first what waits for it alone, then whatever is left; beside
  // an engine's threads only in synchronous mode, where it is counted as one of them
  if (synchronous()) {
    WorkUntil(deadline, [] { return false; });
  } else if (spec_.step_cost_ns < kChunkNs) {
    WorkUntil(deadline, [&] { return buffer->written.load(std::memory_order_acquire) >= rows; });
  }
  const bool ready = done_event_.WaitUntil(
      [&] { return buffer->written.load(std::memory_order_acquire) >= rows || closed(); }, deadline,
      kSpin);
  if (closed()) throw ClosedError("the pool was closed while recv waited");
  if (!ready) return {};
  ThrowIfFailed();

  // hand the batch out
  const std::lock_guard lock(send_mutex_);
  received_ += rows;
  recv_sequence_.store(sequence + 1, std::memory_order_release);
  const std::int32_t* ids = buffer->view().env_id;
  for (std::int32_t i = 0; i < rows && !whole_round_; ++i) {
    in_flight_[ids[i] - options_.env_id_offset].store(0, std::memory_order_relaxed);
  }
  whole_round_ = false;
  const auto slot = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& candidate) {
    return candidate.buffer.get() == buffer;
  });
  slot->received = true;
  return {slot->buffer, rows};
}

void CpuPool::Release(BatchBuffer* buffer) {
  const std::lock_guard lock(send_mutex_);
  for (Slot& slot : slots_) {
    if (slot.buffer.get() == buffer) slot.open = slot.received = false;
  }
  if (closed()) buffer->users.reset();  // Close left it to the receiver
}

bool CpuPool::Drain(Clock::time_point deadline) {
  const auto recv_lock = LockOpen(recv_mutex_);
  const DrainingFlag draining(*this);
  if (synchronous() || spec_.step_cost_ns < kChunkNs) WorkUntil(deadline, [] { return false; });
  const auto all_written = [&] {
    const std::lock_guard lock(send_mutex_);
    std::int64_t written = 0;
    for (auto sequence = recv_sequence_.load(); sequence < opened_; ++sequence) {
      written += BufferOf(sequence)->written.load(std::memory_order_seq_cst);
    }
    return written >= sent_ - received_ || closed();
  };
  const bool drained = done_event_.WaitUntil(all_written, deadline, kSpin);
  if (!drained) return false;
  if (closed()) throw ClosedError("the pool was closed while it drained");

  // nothing runs any more: forget the unread rows and begin a fresh batch
  const std::lock_guard lock(send_mutex_);
  for (auto sequence = recv_sequence_.load(); sequence < opened_; ++sequence) {
    for (Slot& slot : slots_) {
      if (slot.buffer.get() == BufferOf(sequence)) slot.open = false;
    }
  }
  for (auto& flag : in_flight_) flag.store(0, std::memory_order_relaxed);
  whole_round_ = false;
  received_ = sent_;
  ClearFailures();
  recv_sequence_.store(opened_, std::memory_order_release);
  next_row_.store(opened_ * options_.batch_size, std::memory_order_release);
  return true;
}

void CpuPool::ThrowIfFailed() {
  if (!failed_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(failure_mutex_);
  failed_.store(false, std::memory_order_relaxed);
  std::string message = std::to_string(failures_.size()) + " environment(s) failed: ";
  for (std::size_t i = 0; i < failures_.size() && i < 4; ++i) {
    message += (i ? "; env_id " : "env_id ") + std::to_string(failures_[i].first) + ": " +
               failures_[i].second;
  }
  failures_.clear();
  throw EnvError(message +
                 ". The other environments go on: the next recv returns the batch, in which the "
                 "failed ones are truncated and begin a new episode with their next step");
}

void CpuPool::ClearFailures() {
  const std::lock_guard lock(failure_mutex_);
  failures_.clear();
  failed_.store(false, std::memory_order_relaxed);
}

// Publishes finished rows and wakes Recv when the batch is full; Drain waits for
// less than full batches and so looks at every chunk.
void CpuPool::FinishRows(BatchBuffer& buffer, std::int32_t count) {
  const std::int32_t target = synchronous() ? round_rows_.load(std::memory_order_acquire)
                                            : options_.batch_size;
  const std::int32_t written =
      buffer.written.fetch_add(count, std::memory_order_seq_cst) + count;
  if (written >= target || draining_.load(std::memory_order_seq_cst)) done_event_.Notify();
}

// Runs the cheap rounds that Send left for the caller. Called with recv_mutex_ held.
void CpuPool::RunInline() {
  if (!whole_inline_ && inline_envs_.empty()) return;
  Rows rows(*this, 0);
  envs_->Run(whole_inline_ ? all_envs_ : inline_envs_, CurrentWork(), rows);
  const std::lock_guard lock(send_mutex_);
  whole_inline_ = false;
  inline_envs_.clear();
}

// Lets the caller of Recv or Drain work until `enough()` or nothing is left; at least
// one chunk, so that a pool without threads moves on. Called with recv_mutex_ held.
void CpuPool::WorkUntil(Clock::time_point deadline, const std::function<bool()>& enough) {
  RunInline();
  while (!enough() && RunChunk() && !closed() && Clock::now() < deadline) {
  }
}

// Claims and runs one chunk; false when there was none.
bool CpuPool::RunChunk() {
  const std::int32_t limit = chunk_.load(std::memory_order_relaxed);
  if (whole_next_.load(std::memory_order_relaxed) < options_.num_envs) {
    const std::int32_t first = whole_next_.fetch_add(limit, std::memory_order_acq_rel);
    if (first < options_.num_envs) {
      const std::int32_t count = std::min(limit, options_.num_envs - first);
      Rows rows(*this, first);
      envs_->Run(all_envs().subspan(first, count), CurrentWork(), rows);
      return true;
    }
  }
  std::int32_t envs[kMaxChunk];
  const WorkQueue::Claim claim = queue_.TryClaim({envs, static_cast<std::size_t>(limit)});
  if (claim.count == 0) return false;
  Rows rows(*this, claim.position - round_position_.load(std::memory_order_acquire));
  envs_->Run({envs, static_cast<std::size_t>(claim.count)}, CurrentWork(), rows);
  return true;
}

void CpuPool::WorkerLoop() {
  const auto has_work = [this] {
    return closed() || whole_next_.load(std::memory_order_acquire) < options_.num_envs ||
           !queue_.Empty();
  };
  while (true) {
    work_event_.WaitUntil(has_work, Clock::now() + std::chrono::hours(1), kSpin);
    if (closed()) return;
    RunChunk();
  }
}

void CpuPool::Close() {
  stop_.store(true, std::memory_order_release);
  if (CurrentForkGeneration() != fork_generation_) {
    // a forked child: the threads exist only in the parent, so they cannot be joined
    if (!threads_.empty()) new std::vector<std::thread>(std::move(threads_));
    return;
  }
  work_event_.Notify();
  done_event_.Notify();

  // join without the pool's locks: a Recv that comes now must not wait for slow environments
  const std::lock_guard close_lock(close_mutex_);
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }

  // take everything out under the locks, destroy it after them
  std::vector<Slot> slots;
  std::unique_ptr<EnvBatch> envs;
  {
    const std::scoped_lock lock(recv_mutex_, send_mutex_);
    threads_.clear();
    slots.swap(slots_);
    envs = std::move(envs_);
  }
  for (Slot& slot : slots) {
    if (!slot.received) slot.buffer->users.reset();
  }
}

std::int32_t CpuPool::num_in_flight() const {
  const std::lock_guard lock(send_mutex_);
  return static_cast<std::int32_t>(sent_ - received_);
}

std::int64_t CpuPool::buffer_bytes() const {
  const std::lock_guard lock(send_mutex_);
  std::int64_t total = 0;
  for (const Slot& slot : slots_) total += slot.buffer->bytes();
  return total;
}

std::span<std::uint8_t> CpuPool::StateBytes(std::int32_t env) {
  const auto lock = LockOpen(send_mutex_);
  if (env < 0 || env >= options_.num_envs || InFlight(env)) {
    throw ProtocolError(Describe(env) + " is unknown or in flight");
  }
  return envs_->StateBytes(env);
}

}  // namespace rollouts
