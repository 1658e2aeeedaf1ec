// SPDX-License-Identifier: Apache-2.0
// Sending to a CpuPool; cpu_pool_recv.cpp receives.
#include <algorithm>

#include "rollouts/pool/cpu_pool.h"
#include "rollouts/support/errors.h"

namespace rollouts {

bool CpuPool::Send(std::span<const std::int32_t> envs, const Fill& fill, const BatchView* out) {
  const OpenLock lock(*this, send_mutex_);
  // all checks come before the first action is written
  const bool all = scheduler_.IsAll(envs);
  EnvBatch* ends = options_.rules.autoreset == AutoresetMode::kDisabled ? envs_.get() : nullptr;
  if (all) {
    ledger_.CheckSendAll(envs, ends);
  } else {
    ledger_.CheckSend(envs, ends);
  }
  if (out) CheckOut();
  if (redirected_ && ledger_.num_in_flight() != 0) {
    throw ProtocolError("a send with out must be the only one before the next recv");
  }
  if (!envs.empty()) CheckPush();

  // idle environments do not read their actions, so that actions of a refused send do no harm
  if (!(all ? scheduler_.ForAllRows(fill) : fill(0, std::ssize(envs)))) return false;
  // checked again, because the copy may have taken a while
  CheckUsable();
  if (all) {
    // an earlier reset may have left other commands
    std::fill(commands_.begin(), commands_.end(), Command::kStep);
  } else {
    for (const std::int32_t env : envs) commands_[env] = Command::kStep;
  }
  Push(envs, out);
  return true;
}

// Checks that nothing else is in flight, because `out` is one array for the whole round.
void CpuPool::CheckOut() const {
  if (!synchronous()) {
    throw ProtocolError("out needs batch_size == num_envs: in asynchronous mode rows are written "
                        "in the order in which environments finish");
  }
  if (ledger_.num_in_flight() != 0) {
    throw ProtocolError("a send with out must be the only one before the next recv");
  }
}

// Checks that no call of another thread prevents a send.
void CpuPool::CheckPush() const {
  // a synchronous round is complete when every row sent is finished, so it may not grow during Recv
  if (synchronous() && receiving_) {
    throw ProtocolError("another thread is in recv; with batch_size == num_envs send and recv take turns");
  }
  // Drain counts all rows sent as received when it ends
  if (draining_.load(std::memory_order_relaxed)) {
    throw ProtocolError("another thread resets; send after its reset has returned");
  }
}

void CpuPool::CheckReset(const std::uint8_t* mask) const {
  const OpenLock lock(*this, send_mutex_);
  ledger_.CheckReset(mask);
}

void CpuPool::SendReset(const std::uint8_t* mask) {
  const OpenLock lock(*this, send_mutex_);
  ledger_.CheckReset(mask);
  CheckPush();
  for (std::int32_t env = 0; env < options_.num_envs; ++env) {
    // the others show their observation, because a reset returns a row of every environment
    commands_[env] = !mask || mask[env] ? Command::kReset : Command::kObserve;
  }
  ledger_.MarkAllStarted();
  Push(all_envs());
}

// Offers environments that passed CheckPush, with their commands and actions.
void CpuPool::Push(std::span<const std::int32_t> envs, const BatchView* out) {
  const auto count = static_cast<std::int32_t>(envs.size());
  if (count == 0) return;
  const std::int32_t pending = ledger_.num_in_flight();
  if (synchronous()) {
    // opened before any participant may use the buffer
    if (pending == 0) OpenRound(out);
    round_rows_.store(pending + count, std::memory_order_release);
  } else {
    // opens all buffers up to that of the last row in flight; rows are numbered from construction
    buffers_.Open((NextReceived() + pending + count - 1) / options_.batch_size);
  }
  if (synchronous() && pending == 0 && scheduler_.IsAll(envs)) {
    ledger_.MarkAllSent();
    stats_.SentAll();
    scheduler_.PushAll();
    return;
  }
  // from here on calls that need these environments idle refuse them
  ledger_.MarkSent(envs);
  stats_.Sent(envs);
  scheduler_.Push(envs, pending);
}

// The first send of a round opens its buffer.
void CpuPool::OpenRound(const BatchView* out) {
  const std::int64_t sequence = recv_sequence_.load(std::memory_order_relaxed);
  buffers_.Open(sequence);
  redirected_ = out != nullptr;
  if (out) buffers_.Of(sequence)->Redirect(*out);
}

BatchFinisher* CpuPool::Finisher() {
  const OpenLock lock(*this, send_mutex_);
  return envs_->Finisher();
}

void CpuPool::ForAllEnvs(const EnvTask& task, const Sharing& sharing) {
  const OpenLock recv_lock(*this, recv_mutex_);
  {
    const OpenLock lock(*this, send_mutex_);
    if (!synchronous()) {
      throw ProtocolError("environments are taken through many steps at once only in a pool with "
                          "batch_size == num_envs");
    }
    EnvBatch* ends = options_.rules.autoreset == AutoresetMode::kDisabled ? envs_.get() : nullptr;
    ledger_.CheckSendAll(all_envs(), ends);
    CheckPush();
    if (envs_->Finisher() != sharing.finisher) {
      throw ProtocolError("update_statistics was changed while a rollout began");
    }
    std::fill(commands_.begin(), commands_.end(), Command::kStep);
    ledger_.MarkAllSent();
  }
  do {
    scheduler_.ForAllEnvs(
        [&](std::int32_t participant, EnvRange range) {
          stats_.AddSteps(participant, task(*envs_, CurrentWork(), actions_.data(), range));
        },
        sharing.chunk, sharing.alone, sharing.poll);
  } while (sharing.again && sharing.again(commands_));
  {
    const MutexLock lock(send_mutex_);
    ledger_.ForgetSent();
  }
  if (closed()) throw ClosedError("the pool was closed while environments were stepped");
  ThrowIfFailed();
  // the task has reported failures already, and no later row belongs to them
  failures_.Clear();
}

}  // namespace rollouts
