// SPDX-License-Identifier: Apache-2.0
// A batch of environments stepped by threads: send actions, recv batches.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rollouts/pool/buffer_ring.h"
#include "rollouts/pool/env_batch.h"
#include "rollouts/pool/env_ledger.h"
#include "rollouts/pool/failure_log.h"
#include "rollouts/pool/scheduler.h"
#include "rollouts/pool/step_stats.h"
#include "rollouts/support/event.h"
#include "rollouts/support/mutex.h"
#include "rollouts/support/options.h"

namespace rollouts {

// Consequences of an environment's failure; its row is truncated in both cases.
enum class OnEnvError : std::int32_t { kRaise, kReset };

struct PoolOptions {
  std::int32_t num_envs = 1;
  std::int32_t batch_size = 1;   // == num_envs: synchronous
  // Includes the caller of Recv in synchronous mode. In asynchronous mode the caller helps these
  // threads with light environments.
  std::int32_t num_threads = 1;
  std::vector<std::int32_t> pin_cpus;  // one per worker thread; empty: they run anywhere
  std::int32_t env_id_offset = 0;
  std::uint64_t seed = 0;
  OnEnvError on_env_error = OnEnvError::kRaise;
  StepRules rules;
};

// Synchronous (batch_size == num_envs): Recv returns every environment sent
// since the last Recv, in the order sent. Asynchronous: Recv returns the first
// batch_size environments to finish, RecvRows more or fewer.
//
// Threads may share a pool. Send, SendReset, Seed and Release take `send_mutex_` briefly and never
// wait for environments; Recv and Drain hold `recv_mutex_` while they wait. Lock order:
// close_mutex_, recv_mutex_, send_mutex_. Worker threads take none of them.
//
// This class has the calls and their locks. EnvLedger records which environments may be sent,
// Scheduler assigns them to threads, BufferRing finds the buffers for their rows, and FailureLog
// keeps their failures.
class CpuPool final : private ChunkRunner {
 public:
  using Clock = Event::Clock;

  // Rows [first, first + rows) of a buffer.
  struct Received {
    std::shared_ptr<BatchBuffer> buffer;
    std::int32_t first = 0;
    std::int32_t rows = 0;
    bool pooled = true;  // false: a copy, which is not one of the pool's buffers
    std::vector<Failure> failures = {};  // failures of these rows, unless they were thrown
  };

  // The number of rows that Recv waits for, and the most that it may return; asynchronous mode.
  struct Rows {
    std::int32_t min;
    std::int32_t max;
  };

  CpuPool(std::unique_ptr<EnvBatch> envs, const PoolOptions& options);
  ~CpuPool();
  CpuPool(const CpuPool&) = delete;
  CpuPool& operator=(const CpuPool&) = delete;

  const PoolOptions& options() const { return options_; }
  const EnvSpec& spec() const { return spec_; }
  bool synchronous() const { return options_.batch_size == options_.num_envs; }
  bool closed() const { return scheduler_.stopped(); }

  // Every index in order; sending exactly this span is cheaper than sending an equal list.
  std::span<const std::int32_t> all_envs() const { return scheduler_.all_envs(); }

  // Writes the actions of envs [first, first + count) of a send into their rows; false where one of
  // them is invalid. Several threads may call it at once, for different parts of a send of
  // all_envs(). It must not throw, and of the pool it may call only ActionRow.
  using Fill = Scheduler::RowTask;

  // Checks that every environment listed is known, idle, started, listed once and (autoreset
  // disabled) not at its episode's end, lets `fill` write their actions, and starts stepping them.
  // Takes indices, not global ids. Throws ProtocolError, and returns false where `fill` did;
  // nothing is sent then. Never waits for environments. `out`: arrays of envs.size() rows; those
  // that are not null are written in place of the pool's. They have to stay valid until the batch
  // was received or drained, or Close has returned. `out` needs synchronous mode and a round
  // without any other Send.
  [[nodiscard]] bool Send(std::span<const std::int32_t> envs, const Fill& fill,
                          const BatchView* out = nullptr);

  // The action row of an environment, for `fill` alone.
  std::uint8_t* ActionRow(std::int32_t env) { return actions_.data() + env * action_bytes_; }
  std::int64_t action_bytes() const { return action_bytes_; }

  // Copies the last actions sent to environments at rest to `out`, row after row.
  void ReadActions(std::span<const std::int32_t> envs, std::uint8_t* out);

  // Starts new episodes where mask[env] != 0 (null: everywhere). The other environments write their
  // current observation again.
  void SendReset(const std::uint8_t* mask);

  // Throws what SendReset would throw now.
  void CheckReset(const std::uint8_t* mask) const;
  // All options of an environment, including those at their default.
  Options OptionsOf(std::int32_t env);
  EngineChoice EngineOf(std::int32_t env);

  // Changes options, or values in the models, of the environments that SendReset(mask) would reset;
  // options that are not named stay. The environments must be reset before they are stepped. Throws
  // SpecError where an option or field does not exist, does not fit or would change the spaces, and
  // ProtocolError as SendReset; nothing has changed then.
  void Change(const std::uint8_t* mask, const EnvChanges& changes);

  // Fields of the model behind an idle environment, as EnvBatch::ReadModel returns them.
  ModelArray ReadModel(std::int32_t env, const std::string& field, bool of_file);
  std::vector<std::string> ModelFields(std::int32_t env);

  // For rewards and ends that the caller computes: adds rewards to the returns of environments at
  // rest, whose rows were received, and ends the episodes that `terminated` marks. The autoreset
  // mode decides what follows an end. In same-step mode ShowIdle must follow.
  void EndSteps(std::span<const std::int32_t> envs, const double* reward,
                const std::uint8_t* terminated);

  // Observes environments at rest on the caller's thread. `begin`: where an episode is over, the
  // next one begins first. The next Recv reports failures.
  Received ShowIdle(std::span<const std::int32_t> envs, bool begin);

  // Seeds an idle environment's random stream; the environment's next reset begins episode 0.
  void Seed(std::int32_t env, std::uint64_t seed);

  // The random stream of an environment, and the episode that it is in or begins next.
  struct Stream {
    std::uint64_t seed;
    std::uint32_t stream_id;
    std::uint32_t next_episode;
  };
  // StreamOf returns the stream of an idle environment; Seek replaces it: the next reset begins
  // `next_episode`.
  Stream StreamOf(std::int32_t env);
  void Seek(std::int32_t env, const Stream& stream);

  // Waits for the next batch. The pool does not write the buffer again before Release, nor
  // afterwards while it has `users`. Ways out: the batch; Close -> ClosedError; nothing in flight
  // that could fill it -> ProtocolError; an environment failed -> EnvError (the batch then comes
  // with the next Recv), unless on_env_error is kReset; `deadline` -> an empty Received.
  Received Recv(Clock::time_point deadline);

  // As Recv, for rows.min to rows.max rows, in asynchronous mode. Rows from two buffers are copied
  // into one when fewer than rows.min lie in the first.
  Received RecvRows(Clock::time_point deadline, Rows rows);

  // As Recv, for everything in flight, which may be nothing.
  Received RecvAll(Clock::time_point deadline);

  // One thread's work on environments [range.first, ...), with the commands and actions of
  // `work`, whose action rows it may write. Returns how many env-steps it made; must not throw.
  using EnvTask =
      std::function<std::int64_t(EnvBatch& envs, const Work& work, std::uint8_t* actions, EnvRange range)>;

  // The way in which threads divide a task.
  struct Sharing {
    std::int32_t chunk = 1;      // environments that a thread claims at once
    bool alone = false;          // the caller does all: cheaper than waking a thread
    std::function<void()> poll;  // the waiting caller calls it about every 50 ms
    // Called by the caller when the task is done for all environments, with their commands. True:
    // the task is to be done for all of them again. Null: it is done once.
    std::function<bool(std::span<const Command>)> again = nullptr;
    BatchFinisher* finisher = nullptr;  // `Finisher()`, if the task and `again` call it
  };

  // The finisher that needs every row of a step; null where each row is finished alone.
  BatchFinisher* Finisher();

  // Runs `task` on all environments with all threads, in place of Send and Recv, and waits; the
  // environments count as in flight meanwhile. Synchronous mode only. Throws ProtocolError as Send
  // does, ClosedError when the pool was closed meanwhile (the task can call `closed()`), and
  // EnvError as Recv.
  void ForAllEnvs(const EnvTask& task, const Sharing& sharing);
  // For tasks: notes that an environment failed.
  void AddFailure(std::int32_t env, const std::string& message);

  // Lets the pool reuse a received buffer once its users are none.
  void Release(BatchBuffer* buffer);

  // Waits until nothing is in flight and discards what was not received; false when `deadline` came
  // first.
  bool Drain(Clock::time_point deadline);

  // Stops and joins the threads, frees environments and the buffers without users, and wakes all
  // waiting threads. May be called twice and from any thread.
  void Close();

  // Environments sent and not yet received.
  std::int32_t num_in_flight() const;

  // Bytes of all batch buffers the pool owns.
  std::int64_t buffer_bytes() const;

  // Threads that step in addition to the caller of Recv.
  static std::int32_t NumWorkers(const PoolOptions& options) {
    return Scheduler::NumWorkers(options.num_threads, options.batch_size == options.num_envs);
  }

  // Counts and times of the steps made. May be called from any thread, at any time, also after
  // Close.
  StepStatsSnapshot stats() const { return stats_.Read(); }
  void ResetStats() { stats_.Reset(); }

  // Running statistics of what wrapped environments returned. The next three functions throw
  // SpecError where there are none, and wait for a Recv of another thread. `moments` has as many
  // elements as the pool's.
  Moments ReadStatistics(StatisticsOf of);
  // The counts since the last call, to be merged with those of other pools.
  Moments TakeNewStatistics(StatisticsOf of);
  // Throws ProtocolError where statistics are frozen and environments in flight read them.
  void SetStatistics(StatisticsOf of, Moments moments);
  bool updates_statistics();
  // Throws ProtocolError while environments are in flight.
  void UpdateStatistics(bool updates);

  // Raw state of an idle light environment, without its episode; for tests.
  std::span<std::uint8_t> StateBytes(std::int32_t env);

  // All that an environment's later steps depend on: its own state, its random stream and its
  // episode's statistics. Throws ProtocolError unless the environment is idle and was reset.
  std::vector<std::uint8_t> SaveState(std::int32_t env);

  // The environment's part of what SaveState returned, without its episode; borrows from it. Throws
  // SpecError for bytes that SaveState cannot have returned.
  static std::span<const std::uint8_t> EnvInside(std::span<const std::uint8_t> state);

  // A frame drawn by an environment's engine. Throws as SaveState, and SpecError where the
  // environment draws nothing.
  Frame Render(std::int32_t env);

  // The world of an environment with several agents, as EnvBatch::ReadWorld returns it. Throws as
  // Render.
  WorldArrays ReadWorld(std::int32_t env, bool first);

  // Puts states[i] into environment envs[i], which counts as reset then and keeps its env_id.
  // Throws ProtocolError for environments in flight or listed twice, and SpecError for bytes that
  // are no state of these environments; nothing has changed then.
  void LoadStates(std::span<const std::int32_t> envs,
                  std::span<const std::span<const std::uint8_t>> states);

 private:
  class OpenLock;
  class ChunkRows;
  class IdleRows;
  class ReceivingFlag;
  class DrainingFlag;
  class EagerFlag;

  // The former state of an environment that another state is loaded into; it may never have been
  // reset.
  struct Before {
    EpisodeClock clock;
    std::vector<std::uint8_t> state;  // empty where there is nothing to lose: no engine yet
  };

  void MakeEnvs(EnvRange envs) override;
  void RunChunk(const Chunk& chunk) override;
  Work CurrentWork() const {
    return {commands_.data(), actions_.data(), action_bytes_, options_.rules};
  }

  void CheckUsable() const;
  void CheckPush() const ROLLOUTS_REQUIRES(send_mutex_);
  void CheckOut() const ROLLOUTS_REQUIRES(send_mutex_);
  void Push(std::span<const std::int32_t> envs, const BatchView* out = nullptr)
      ROLLOUTS_REQUIRES(send_mutex_);
  void OpenRound(const BatchView* out) ROLLOUTS_REQUIRES(send_mutex_);

  Received RecvRound(Clock::time_point deadline) ROLLOUTS_REQUIRES(recv_mutex_);
  Received RecvOutOfOrder(Clock::time_point deadline, Rows rows) ROLLOUTS_REQUIRES(recv_mutex_);
  Received HandOutRows(std::int64_t first, std::int32_t ready, std::int32_t min)
      ROLLOUTS_REQUIRES(send_mutex_);
  void MarkReceived(Received& received) ROLLOUTS_REQUIRES(send_mutex_);
  Received Copied(std::int64_t first, std::int32_t rows) const;
  std::int32_t ReadyRows(std::int64_t first, std::int32_t most) const;
  void FinishRows(BatchBuffer& buffer, std::int64_t first, std::int32_t count);
  void FinishBatch(const BatchView& view, std::int64_t first, std::int32_t count);
  void ThrowIfFailed();
  RunningMoments& StatisticsIn(StatisticsOf of) ROLLOUTS_REQUIRES(recv_mutex_);
  // The number of the next row to be received, counted since construction.
  std::int64_t NextReceived() const ROLLOUTS_REQUIRES(send_mutex_) {
    return recv_sequence_.load(std::memory_order_relaxed) * options_.batch_size + recv_row_;
  }

  std::vector<std::uint8_t> SaveIdle(std::int32_t env) const ROLLOUTS_REQUIRES(send_mutex_);
  Before SaveToPutBack(std::int32_t env) const ROLLOUTS_REQUIRES(send_mutex_);
  void PutBack(std::int32_t env, const Before& before) ROLLOUTS_REQUIRES(send_mutex_);
  void LoadIdle(std::int32_t env, std::span<const std::uint8_t> state)
      ROLLOUTS_REQUIRES(send_mutex_);

  const PoolOptions options_;
  // participants step the environments in flight; API calls use the others, under send_mutex_
  std::unique_ptr<EnvBatch> envs_;
  const EnvSpec spec_;
  const std::int64_t action_bytes_;
  const int fork_generation_;

  // per environment; written under send_mutex_ while the environment is idle
  std::vector<std::uint8_t> actions_;
  std::vector<Command> commands_;

  Mutex close_mutex_;  // held while threads are joined and their data is freed
  Mutex recv_mutex_ ROLLOUTS_ACQUIRED_AFTER(close_mutex_);
  mutable Mutex send_mutex_ ROLLOUTS_ACQUIRED_AFTER(recv_mutex_);
  EnvLedger ledger_ ROLLOUTS_GUARDED_BY(send_mutex_);
  bool receiving_ ROLLOUTS_GUARDED_BY(send_mutex_) = false;   // a thread is in Recv
  bool redirected_ ROLLOUTS_GUARDED_BY(send_mutex_) = false;  // the round has an `out`
  // rows of the current batch that were received before
  std::int32_t recv_row_ ROLLOUTS_GUARDED_BY(send_mutex_) = 0;

  // participants read these; they are written under send_mutex_, except next_row_, which
  // participants advance
  BufferRing buffers_;
  std::atomic<std::int64_t> recv_sequence_{0};  // the batch being received
  std::atomic<std::int32_t> round_rows_{0};     // synchronous: rows sent in this round
  std::atomic<std::int64_t> next_row_{0};       // asynchronous: next row to hand out
  std::atomic<bool> draining_{false};
  std::atomic<bool> eager_{false};  // a receiver waits for less than a whole batch
  Event done_event_;

  Scheduler scheduler_;
  StepStats stats_;
  FailureLog failures_;
};

// Holds one of a pool's locks. Throws when the pool was closed, even while it waited for the lock:
// the guarded data is gone then.
class ROLLOUTS_SCOPED_CAPABILITY CpuPool::OpenLock {
 public:
  OpenLock(const CpuPool& pool, Mutex& mutex) ROLLOUTS_ACQUIRE(mutex);
  ~OpenLock() ROLLOUTS_RELEASE() { mutex_.Unlock(); }
  OpenLock(const OpenLock&) = delete;
  OpenLock& operator=(const OpenLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace rollouts
