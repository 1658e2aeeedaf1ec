// SPDX-License-Identifier: Apache-2.0
// Receiving from a CpuPool; cpu_pool_send.cpp sends.
#include <algorithm>

#include "rollouts/pool/cpu_pool.h"
#include "rollouts/support/errors.h"
#include "timing.h"

namespace rollouts {

// Marks, while it exists, that a thread is in Recv.
class CpuPool::ReceivingFlag {
 public:
  explicit ReceivingFlag(CpuPool& pool) : pool_(pool) { Set(true); }
  ~ReceivingFlag() { Set(false); }

 private:
  void Set(bool value) {
    const MutexLock lock(pool_.send_mutex_);
    pool_.receiving_ = value;
  }
  CpuPool& pool_;
};

// Refuses sends while it exists, because Drain forgets all that is in flight when it ends.
class CpuPool::DrainingFlag {
 public:
  explicit DrainingFlag(CpuPool& pool) : pool_(pool) { Set(true); }
  ~DrainingFlag() { Set(false); }

 private:
  void Set(bool value) {
    // set under the lock, as in ReceivingFlag: the next sender sees what the caller has stepped
    // meanwhile
    const MutexLock lock(pool_.send_mutex_);
    pool_.draining_.store(value, std::memory_order_seq_cst);
  }
  CpuPool& pool_;
};

// Makes every finished chunk notify, and not only a full batch, while it exists.
class CpuPool::EagerFlag {
 public:
  EagerFlag(CpuPool& pool, bool eager) : pool_(pool) {
    pool_.eager_.store(eager, std::memory_order_seq_cst);
  }
  ~EagerFlag() { pool_.eager_.store(false, std::memory_order_seq_cst); }

 private:
  CpuPool& pool_;
};

CpuPool::Received CpuPool::Recv(Clock::time_point deadline) {
  const OpenLock lock(*this, recv_mutex_);
  if (synchronous()) return RecvRound(deadline);
  return RecvOutOfOrder(deadline, {options_.batch_size, options_.batch_size});
}

CpuPool::Received CpuPool::RecvRows(Clock::time_point deadline, Rows rows) {
  const OpenLock lock(*this, recv_mutex_);
  return RecvOutOfOrder(deadline, rows);
}

CpuPool::Received CpuPool::RecvAll(Clock::time_point deadline) {
  const OpenLock lock(*this, recv_mutex_);
  const std::int32_t pending = num_in_flight();
  // a batch without rows, but with the arrays of one
  if (pending == 0) return Copied(0, 0);
  if (synchronous()) return RecvRound(deadline);
  return RecvOutOfOrder(deadline, {pending, pending});
}

CpuPool::Received CpuPool::RecvRound(Clock::time_point deadline) {
  const ReceivingFlag receiving(*this);
  const std::int32_t rows = num_in_flight();
  if (rows == 0) {
    throw ProtocolError("recv would never return: no environment is in flight; call send or "
                        "async_reset first");
  }
  StepStats::RecvTimer timer(stats_);
  BatchBuffer* buffer = buffers_.Of(recv_sequence_.load(std::memory_order_relaxed));
  // the caller steps too: first the work that only it may do, then any that is left
  scheduler_.WorkUntil(deadline, [] { return false; });
  // waits, because workers may take longer for their claims than the caller for its own
  const bool ready = done_event_.WaitUntil(
      [&] { return buffer->written() >= rows || closed(); }, deadline, kSpin);
  if (closed()) throw ClosedError("the pool was closed while recv waited");
  // nothing is lost after the deadline: the next call waits for the same rows
  if (!ready) return {};
  ThrowIfFailed();
  timer.Received();
  FinishBatch(buffer->target(), 0, rows);

  const MutexLock lock(send_mutex_);
  Received received{buffers_.HandOut(buffer), 0, rows};
  buffers_.CloseBatch(buffer);
  MarkReceived(received);
  // the round is over, and the next send opens a buffer
  recv_sequence_.fetch_add(1, std::memory_order_release);
  return received;
}

CpuPool::Received CpuPool::RecvOutOfOrder(Clock::time_point deadline, Rows rows) {
  std::int32_t pending, at_row;
  std::int64_t first;
  {
    const MutexLock lock(send_mutex_);
    pending = ledger_.num_in_flight();
    at_row = recv_row_;
    first = NextReceived();
  }
  if (pending < rows.min) {
    throw ProtocolError("recv would never return: it waits for " + std::to_string(rows.min) +
                        " environments and " + std::to_string(pending) +
                        " are in flight; call send or async_reset first");
  }
  StepStats::RecvTimer timer(stats_);
  const auto enough = [&] { return ReadyRows(first, rows.min) >= rows.min; };
  {
    // waits for rows, not for whole buffers: each finished chunk may complete them
    const EagerFlag eager(*this, at_row != 0 || rows.min != options_.batch_size);
    scheduler_.WorkUntil(deadline, enough);
    const bool ready =
        done_event_.WaitUntil([&] { return enough() || closed(); }, deadline, kSpin);
    if (closed()) throw ClosedError("the pool was closed while recv waited");
    if (!ready) return {};
  }
  ThrowIfFailed();
  timer.Received();

  const MutexLock lock(send_mutex_);
  Received received =
      HandOutRows(first, ReadyRows(first, std::min(rows.max, pending)), rows.min);
  // done while the rows still count as in flight, so that no thread sends their environments
  FinishBatch(received.buffer->target(), received.first, received.rows);
  MarkReceived(received);
  return received;
}

// Hands out `ready` rows from number `first` on, which is the next to receive; or only those in the
// first buffer, where they are at least `min`.
CpuPool::Received CpuPool::HandOutRows(std::int64_t first, std::int32_t ready, std::int32_t min) {
  const std::int32_t in_buffer = std::min(ready, options_.batch_size - recv_row_);
  // a view where the first buffer has enough rows; else a copy of rows of two buffers
  Received received = in_buffer >= min ? Received{nullptr, recv_row_, in_buffer}
                                       : Copied(first, ready);
  // buffer after buffer
  for (std::int32_t left = received.rows; left > 0;) {
    BatchBuffer* buffer = buffers_.Of(recv_sequence_.load(std::memory_order_relaxed));
    const std::int32_t taken = std::min(left, options_.batch_size - recv_row_);
    buffer->Take(recv_row_, taken);
    left -= taken;
    recv_row_ += taken;
    if (received.pooled) received.buffer = buffers_.HandOut(buffer);
    if (recv_row_ == options_.batch_size) {
      buffers_.CloseBatch(buffer);
      recv_row_ = 0;
      recv_sequence_.fetch_add(1, std::memory_order_release);
    }
  }
  return received;
}

// The number of rows from `first` on that are finished without a gap, up to `most`. All of these
// rows are in flight.
std::int32_t CpuPool::ReadyRows(std::int64_t first, std::int32_t most) const {
  std::int32_t ready = 0;
  while (ready < most) {
    const std::int64_t row = first + ready;
    const std::int64_t in_batch = row % options_.batch_size;
    const BatchBuffer* buffer = buffers_.Of(row / options_.batch_size);
    const std::int32_t chunk = buffer->Ready(in_batch);
    if (chunk == 0) break;
    // taking the last rows gives up the buffer, so all rows must be finished: a thread may touch it
    // until then
    const bool last = in_batch + chunk == options_.batch_size;
    if (last && buffer->written() < options_.batch_size) break;
    ready += chunk;
  }
  return std::min(ready, most);
}

// Copies finished rows from number `first` on into a batch of their own.
CpuPool::Received CpuPool::Copied(std::int64_t first, std::int32_t rows) const {
  // the layout of the pool's buffers, but in order, as all rows are finished
  const bool final_obs = options_.rules.autoreset == AutoresetMode::kSameStep;
  const auto copy = std::make_shared<BatchBuffer>(
      spec_, BatchLayout{.rows = rows, .with_final_obs = final_obs});
  for (std::int32_t done = 0; done < rows;) {
    const std::int64_t row = first + done;
    const auto from = static_cast<std::int32_t>(row % options_.batch_size);
    const std::int32_t count = std::min(rows - done, options_.batch_size - from);
    copy->CopyRows(*buffers_.Of(row / options_.batch_size), from, count, done);
    done += count;
  }
  return {copy, 0, rows, /*pooled=*/false};
}

void CpuPool::MarkReceived(Received& received) {
  const std::int32_t* ids = received.buffer->target().env_id + received.first;
  const std::span env_ids(ids, static_cast<std::size_t>(received.rows));
  ledger_.MarkReceived(env_ids);
  redirected_ = false;
  if (options_.on_env_error == OnEnvError::kReset) received.failures = failures_.TakeOf(env_ids);
}

void CpuPool::Release(BatchBuffer* buffer) {
  const MutexLock lock(send_mutex_);
  buffers_.Release(buffer);
  if (closed()) buffer->users.reset();  // Close left this to the receiver
}

bool CpuPool::Drain(Clock::time_point deadline) {
  const OpenLock recv_lock(*this, recv_mutex_);
  // while this exists workers notify for every chunk, because a full batch may never come
  const DrainingFlag draining(*this);
  scheduler_.WorkUntil(deadline, [] { return false; });
  const auto all_written = [&] {
    const MutexLock lock(send_mutex_);
    // rows of the current batch that Recv has handed out already count as received
    std::int64_t written = -recv_row_;
    for (auto sequence = recv_sequence_.load(); sequence < buffers_.opened(); ++sequence) {
      written += buffers_.Of(sequence)->written();
    }
    return written >= ledger_.num_in_flight() || closed();
  };
  const bool drained = done_event_.WaitUntil(all_written, deadline, kSpin);
  if (!drained) return false;
  if (closed()) throw ClosedError("the pool was closed while it drained");

  // nothing runs any more: forgets the unread rows and begins a new batch
  const MutexLock lock(send_mutex_);
  buffers_.Discard(recv_sequence_.load());
  ledger_.ForgetSent();
  redirected_ = false;
  failures_.Clear();
  recv_row_ = 0;
  recv_sequence_.store(buffers_.opened(), std::memory_order_release);
  // rows continue at the first row of a buffer that was not opened yet
  next_row_.store(buffers_.opened() * options_.batch_size, std::memory_order_release);
  return true;
}

// Finishes rows that need the whole batch; called by the thread that receives them.
void CpuPool::FinishBatch(const BatchView& view, std::int64_t first, std::int32_t count) {
  BatchFinisher* const finisher = envs_->Finisher();
  if (!finisher) return;
  finisher->Count(view, first, count, commands_);
  finisher->Scale(view, first, count);
}

// Called before rows are taken, so that the next call returns them.
void CpuPool::ThrowIfFailed() {
  // with kReset, failures are returned with their rows
  if (options_.on_env_error == OnEnvError::kRaise) failures_.ThrowIfAny();
}

// Publishes finished rows and wakes Recv when the batch is full; a Recv that waits for fewer rows
// is woken by every chunk.
void CpuPool::FinishRows(BatchBuffer& buffer, std::int64_t first, std::int32_t count) {
  // a second send increases round_rows_; a worker that saw the old number notifies once too often
  const std::int32_t target = synchronous() ? round_rows_.load(std::memory_order_acquire)
                                            : options_.batch_size;
  const std::int32_t written = buffer.Finish(first, count);
  if (written >= target || eager_.load(std::memory_order_seq_cst) ||
      draining_.load(std::memory_order_seq_cst)) {
    done_event_.Notify();
  }
}

}  // namespace rollouts
