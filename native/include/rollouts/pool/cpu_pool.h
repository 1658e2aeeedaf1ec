// SPDX-License-Identifier: Apache-2.0
// A batch of environments stepped by threads: send actions, recv batches.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "rollouts/pool/buffer_ring.h"
#include "rollouts/pool/env_batch.h"
#include "rollouts/pool/event.h"
#include "rollouts/pool/round_ranges.h"
#include "rollouts/pool/step_stats.h"
#include "rollouts/pool/work_queue.h"
#include "rollouts/support/errors.h"
#include "rollouts/support/options.h"

namespace rollouts {

// What happens when an environment fails; its row is truncated either way.
enum class OnEnvError : std::int32_t { kRaise, kReset };

struct PoolOptions {
  std::int32_t num_envs = 1;
  std::int32_t batch_size = 1;   // == num_envs: synchronous
  // In synchronous mode the caller of Recv is one of them; in asynchronous mode it helps
  // them with light environments.
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
// Send, SendReset, Seed and Release take `send_mutex_` briefly and never wait for
// environments; Recv and Drain hold `recv_mutex_` while they wait. Lock order:
// close_mutex_, recv_mutex_, send_mutex_. Worker threads take none of them.
//
// Threads may share a pool, but CheckSend, filling the action rows and Send belong
// together: no other thread's Send or SendReset may come between (the bindings
// hold the GIL from one to the other).
class CpuPool {
 public:
  using Clock = Event::Clock;

  struct Failure {
    std::int32_t env_id;  // global
    std::string message;
  };

  // Rows [first, first + rows) of a buffer.
  struct Received {
    std::shared_ptr<BatchBuffer> buffer;
    std::int32_t first = 0;
    std::int32_t rows = 0;
    bool pooled = true;  // false: a copy, which the pool knows nothing of
    std::vector<Failure> failures = {};  // of these rows, unless they were thrown
  };

  // How many rows Recv waits for and how many it may return; asynchronous mode.
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
  bool closed() const { return stop_.load(std::memory_order_acquire); }

  // The action row of an environment. The caller of Send fills it, for idle
  // environments only, after CheckSend accepted them and before Send.
  std::uint8_t* ActionRow(std::int32_t env) { return actions_.data() + env * action_bytes_; }
  std::int64_t action_bytes() const { return action_bytes_; }

  // Every index in order; sending just this is cheaper than an equal list.
  std::span<const std::int32_t> all_envs() const { return all_envs_; }

  // Throws unless every environment listed is known, idle, started, not listed
  // twice and (autoreset disabled) not at its episode's end. Indices, not global ids.
  void CheckSend(std::span<const std::int32_t> envs);

  // Something done to rows [first, first + count), by several threads to different rows.
  using RowTask = std::function<void(std::int64_t first, std::int64_t count)>;

  // Runs `task` on all rows, in a large synchronous pool by all its threads, and waits. For
  // the caller of Send, after CheckSend accepted all_envs() and before Send. It must not throw.
  void ForAllRows(const RowTask& task);

  // Starts stepping the environments with the actions in their rows. Never
  // blocks. CheckSend must have accepted the same environments. `out`: arrays of
  // envs.size() rows, written in place of the pool's where not null; they stay valid
  // until the batch was received, drained or Close has returned. Synchronous mode only,
  // and the round has no other Send then.
  void Send(std::span<const std::int32_t> envs, const BatchView* out = nullptr);

  // Starts new episodes where mask[env] != 0 (null: everywhere). With a mask the
  // other environments write their current observation again.
  void SendReset(const std::uint8_t* mask);

  // Throws what SendReset would throw now.
  void CheckReset(const std::uint8_t* mask) const;
  // All options of an environment, those at their default too.
  Options OptionsOf(std::int32_t env);

  // Gives the environments that SendReset(mask) would reset other options, or other values in
  // their models; what is not named stays. They must be reset before they are stepped. Throws
  // SpecError where an option or field does not exist, does not fit or would change the spaces,
  // and ProtocolError as SendReset; nothing has changed then.
  void Change(const std::uint8_t* mask, const EnvChanges& changes);

  // Fields of the model behind an idle environment: EnvBatch has what they say.
  ModelArray ReadModel(std::int32_t env, const std::string& field, bool of_file);
  std::vector<std::string> ModelFields(std::int32_t env);

  // For rules that are the caller's own: adds rewards to the returns of environments at rest,
  // whose rows were received, and ends the episodes of those marked. What an end means next is
  // the autoreset mode's. In same-step mode ShowIdle must follow.
  void EndSteps(std::span<const std::int32_t> envs, const double* reward,
                const std::uint8_t* terminated);

  // Observes environments at rest on the caller's thread. `begin`: where an episode is over, the
  // next one begins first. Failures are reported with the next Recv.
  Received ShowIdle(std::span<const std::int32_t> envs, bool begin);

  // Seeds an idle environment's random stream; its next reset begins episode 0.
  void Seed(std::int32_t env, std::uint64_t seed);

  // Waits for the next batch. The buffer stays the caller's until Release (and
  // then until its `users` are none). Ways out: the batch; Close -> ClosedError;
  // nothing in flight that could fill it -> ProtocolError; an environment failed
  // -> EnvError (the batch then comes with the next Recv), unless on_env_error is
  // kReset; `deadline` -> an empty Received.
  Received Recv(Clock::time_point deadline);

  // As Recv, for rows.min to rows.max rows, in asynchronous mode. Rows that lie in two
  // buffers are copied when fewer than rows.min lie in the first.
  Received RecvRows(Clock::time_point deadline, Rows rows);

  // As Recv, for everything in flight, which may be nothing.
  Received RecvAll(Clock::time_point deadline);

  // Lets the pool reuse a received buffer once its users are none.
  void Release(BatchBuffer* buffer);

  // Waits until nothing is in flight and discards what was not received; false
  // when `deadline` came first.
  bool Drain(Clock::time_point deadline);

  // Stops and joins the threads, frees environments and buffers nobody holds,
  // wakes whoever waits. May be called twice and from any thread.
  void Close();

  // Environments sent and not yet received.
  std::int32_t num_in_flight() const;

  // Bytes of all batch buffers the pool owns.
  std::int64_t buffer_bytes() const;

  // Threads that step beside the caller of Recv.
  static std::int32_t NumWorkers(const PoolOptions& options) {
    return options.num_threads - (options.batch_size == options.num_envs ? 1 : 0);
  }

  // Counts and times of what was stepped; from any thread, at any time, also after Close.
  StepStatsSnapshot stats() const { return stats_.Read(); }
  void ResetStats() { stats_.Reset(); }

  // Raw state of an idle light environment, without its episode; for tests.
  std::span<std::uint8_t> StateBytes(std::int32_t env);

  // All that the future of an environment depends on: itself, its random stream and its
  // episode's statistics. For idle environments that were reset, else ProtocolError.
  std::vector<std::uint8_t> SaveState(std::int32_t env);

  // What an environment's engine shows. As SaveState; SpecError where nothing draws it.
  Frame Render(std::int32_t env);

  // Puts states[i] into environment envs[i], which counts as reset then and keeps its
  // env_id. Throws ProtocolError for environments in flight or listed twice and
  // SpecError for bytes that are no state of theirs; nothing has changed then.
  void LoadStates(std::span<const std::int32_t> envs,
                  std::span<const std::span<const std::uint8_t>> states);

 private:
  class ChunkRows;
  class IdleRows;
  class ReceivingFlag;
  class DrainingFlag;
  class EagerFlag;

  void CheckUsable() const;
  void CheckResettable(const std::uint8_t* mask) const;
  void CheckIdle(std::span<const std::int32_t> envs) const;
  void AddFailure(std::int32_t env, const std::string& message);
  void CheckLoadable(std::span<const std::int32_t> envs) const;
  std::vector<std::uint8_t> SaveIdle(std::int32_t env) const;
  // An environment that a state is loaded into, also one that was never reset.
  struct Before {
    EpisodeClock clock;
    std::vector<std::uint8_t> state;  // empty where there is nothing to lose: no engine yet
  };
  Before SaveToPutBack(std::int32_t env) const;
  void PutBack(std::int32_t env, const Before& before);
  void LoadIdle(std::int32_t env, std::span<const std::uint8_t> state);
  std::unique_lock<std::mutex> LockOpen(std::mutex& mutex) const;
  void StartWorkers();
  void MakeEnvs(std::int32_t participant);
  bool StartWorker(std::int32_t worker, std::promise<void>& made);
  void WorkerLoop(std::int32_t worker);
  bool RunChunk(std::int32_t participant);
  void RunRowTask(const RowTask& task, EnvRange rows);
  void RunInline();
  void WorkUntil(Clock::time_point deadline, const std::function<bool()>& enough);
  std::int32_t ChunkSize(std::int32_t sent) const;
  void Push(std::span<const std::int32_t> envs, const BatchView* out = nullptr);
  void PushAll();
  bool IsAll(std::span<const std::int32_t> envs) const {
    return envs.data() == all_envs_.data() && envs.size() == all_envs_.size();
  }
  bool CallerWorks() const;
  // Whether the caller is one of num_threads, so that the last worker is one too many.
  bool HasReserve() const { return !synchronous() && CallerWorks(); }
  bool IsCheap(std::int64_t count) const;
  // Whether a synchronous round of so many is the caller's own, and run as one.
  bool RunsInline(std::int64_t count) const;
  // Whoever steps is a participant: in synchronous mode the caller of Recv, who is 0, and
  // the workers; in asynchronous mode the workers, and the caller, who comes last.
  std::int32_t CallerParticipant() const { return synchronous() ? 0 : options_.num_threads; }
  std::int32_t WorkerParticipant(std::int32_t worker) const {
    return worker + (synchronous() ? 1 : 0);
  }
  // With send_mutex_ held.
  bool InFlight(std::int32_t env) const {
    return whole_round_ || in_flight_[env].load(std::memory_order_relaxed);
  }
  Work CurrentWork() const {
    return {commands_.data(), actions_.data(), action_bytes_, options_.rules};
  }
  Received RecvRound(Clock::time_point deadline);
  Received RecvOutOfOrder(Clock::time_point deadline, Rows rows);
  std::int32_t ReadyRows(std::int64_t first, std::int32_t most) const;
  Received Copied(std::int64_t first, std::int32_t rows) const;
  void MarkReceived(Received& received);
  void ThrowIfFailed();
  void TakeFailures(Received& received);
  void ClearFailures();
  void FinishRows(BatchBuffer& buffer, std::int64_t first, std::int32_t count);
  // With recv_mutex_ held.
  std::int64_t NextReceived() const {
    return recv_sequence_.load(std::memory_order_relaxed) * options_.batch_size + recv_row_;
  }
  std::string Describe(std::int32_t env) const;

  const PoolOptions options_;
  std::unique_ptr<EnvBatch> envs_;
  const EnvSpec spec_;
  const std::int64_t action_bytes_;
  const int fork_generation_;

  // per environment; written by the API thread while the environment is idle
  std::vector<std::uint8_t> actions_;
  std::vector<Command> commands_;
  std::vector<std::uint8_t> started_;
  bool all_started_ = false;
  std::vector<std::atomic<std::uint8_t>> in_flight_;
  std::vector<std::int32_t> all_envs_;

  mutable std::mutex send_mutex_;
  std::int64_t sent_ = 0;                  // guarded by send_mutex_: rows sent, ever
  std::int64_t received_ = 0;              // guarded by send_mutex_: rows received, ever
  bool receiving_ = false;                 // guarded by send_mutex_: a thread is in Recv
  bool whole_round_ = false;               // guarded by send_mutex_: all envs are in flight
  bool whole_inline_ = false;              // as inline_envs_, for all envs
  bool redirected_ = false;                // guarded by send_mutex_: the round has an `out`
  std::vector<std::int32_t> inline_envs_;  // guarded by send_mutex_ until Recv runs them

  std::mutex recv_mutex_;
  std::atomic<std::int64_t> recv_sequence_{0};  // written under both mutexes
  std::int32_t recv_row_ = 0;  // guarded by both: rows of that batch received before

  // shared with the worker threads
  WorkQueue queue_;
  BufferRing buffers_;
  std::atomic<std::int64_t> next_row_{0};        // asynchronous: next row to hand out
  std::atomic<std::int64_t> round_position_{0};  // synchronous: queue position of row 0
  std::atomic<std::int32_t> round_rows_{0};      // synchronous: rows sent in this round
  RoundRanges ranges_;             // synchronous: what is left of a whole round
  const std::int32_t whole_chunk_;  // synchronous: what is claimed of it at once
  // what is done to claimed rows in place of stepping them; written while no rows are left
  std::atomic<const RowTask*> row_task_{nullptr};
  std::atomic<std::int32_t> rows_done_{0};  // by row_task_
  const std::int64_t reserve_limit_;  // queued environments for which the last worker joins
  std::atomic<std::int32_t> chunk_{1};
  std::atomic<bool> stop_{false};
  std::atomic<bool> draining_{false};  // raised under send_mutex_
  std::atomic<bool> eager_{false};     // someone waits for less than whole batches
  Event work_event_;
  Event reserve_event_;  // of the last worker, where there is a reserve
  Event done_event_;

  StepStats stats_;

  std::mutex failure_mutex_;
  std::vector<Failure> failures_;  // guarded by failure_mutex_
  std::atomic<bool> failed_{false};

  std::mutex close_mutex_;             // taken before all others
  std::vector<std::thread> threads_;  // joined under close_mutex_
};

}  // namespace rollouts
