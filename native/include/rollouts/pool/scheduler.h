// SPDX-License-Identifier: Apache-2.0
// Shares out work: threads, and the caller of Recv, claim chunks of environments that were sent.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <span>
#include <thread>
#include <vector>

#include "rollouts/pool/round_ranges.h"
#include "rollouts/pool/work_queue.h"
#include "rollouts/support/event.h"

namespace rollouts {

// Environments that one participant claimed at once. Participants are the worker threads and the
// caller of Recv; each has a number.
struct Chunk {
  std::int32_t participant = 0;
  std::span<const std::int32_t> envs;
  std::int64_t first_row = 0;  // synchronous: the first environment's row in the round
  bool whole_round = false;    // PushAll began the round
};

// The participants' work; called by several at once, for different environments.
class ChunkRunner {
 public:
  // Makes the environments that a participant will mostly step, on its thread.
  virtual void MakeEnvs(EnvRange envs) = 0;
  virtual void RunChunk(const Chunk& chunk) = 0;

 protected:
  ~ChunkRunner() = default;
};

// Synchronous: the environments sent are a round, which the caller of Recv helps to step, or steps
// alone where that is cheaper than waking a thread. Asynchronous: environments wait in a queue, and
// the caller of Recv steps light ones.
//
// Calls of a sender (Push, PushAll, ForAllRows) come one at a time, as do calls of a receiver
// (WorkUntil); in synchronous mode a sender and a receiver do not overlap either. The pool's locks
// ensure that. Nothing here takes a lock except to wake a thread.
class Scheduler {
 public:
  using Clock = Event::Clock;

  // Processes rows [first, first + count), by several threads for different rows; false where one
  // of them is wrong. It must not throw.
  using RowTask = std::function<bool(std::int64_t first, std::int64_t count)>;

  struct Settings {
    std::int32_t num_envs = 1;
    std::int32_t num_threads = 1;  // with the caller of a synchronous Recv
    bool synchronous = true;
    std::int32_t step_cost_ns = 1;
    std::int32_t together = 1;  // most environments with slow steps that a thread claims at once
    std::vector<std::int32_t> pin_cpus;  // one per worker; empty: they run anywhere
  };

  Scheduler(ChunkRunner& runner, const Settings& settings);

  // Threads that step in addition to the caller of Recv.
  static std::int32_t NumWorkers(std::int32_t num_threads, bool synchronous) {
    return num_threads - (synchronous ? 1 : 0);
  }

  // Starts the workers, and lets every participant make its environments. Throws what they throw,
  // and SpecError where the system has no more threads; Stop and Join must be called then, too.
  void Start();
  // Ends each worker after its current step.
  void Stop() { stopped_.store(true, std::memory_order_release); }
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }
  // Waits until the workers have ended. Call after Stop, from one thread at a time.
  void Join();
  // Replaces Join in a forked child, where there are no threads to join.
  void Abandon();

  // Every index in order; pushing exactly this span is cheaper than pushing an equal list.
  std::span<const std::int32_t> all_envs() const { return all_envs_; }
  bool IsAll(std::span<const std::int32_t> envs) const {
    return envs.data() == all_envs_.data() && envs.size() == all_envs_.size();
  }

  // Offers environments for stepping; `pending` others were sent before and are in flight.
  void Push(std::span<const std::int32_t> envs, std::int64_t pending);
  // Begins a round of the whole synchronous pool, the usual case: row i is environment i.
  void PushAll();
  // Runs `task` on all rows, in a large synchronous pool by all participants, and waits. Returns
  // true if the task always did. Nothing may be in flight.
  bool ForAllRows(const RowTask& task);

  // One participant's work on environments; it must not throw.
  using EnvTask = std::function<void(std::int32_t participant, EnvRange envs)>;

  // Runs `task` on all environments of a synchronous pool, some `chunk` at a time, by all
  // participants, or by the caller `alone`, and waits. The caller calls `poll` about every 50 ms
  // while it waits for the others. Nothing may be in flight.
  void ForAllEnvs(const EnvTask& task, std::int32_t chunk, bool alone,
                  const std::function<void()>& poll);

  // Lets the caller of Recv work until `enough()` is true, `deadline` has passed or nothing is
  // left. It runs at least one chunk, so that a pool without threads makes progress. Returns at
  // once where its help is not wanted.
  void WorkUntil(Clock::time_point deadline, const std::function<bool()>& enough);

 private:
  bool MakeOwn(std::int32_t worker, std::promise<void>& made);
  void WorkerLoop(std::int32_t worker);
  void RunInline();
  bool RunOne(std::int32_t participant);
  // Work on claimed ranges in place of stepping them.
  struct SharedTask {
    std::function<bool(std::int32_t participant, EnvRange envs)> run;
    std::int32_t chunk;
  };
  bool Share(const SharedTask& task, const std::function<void()>& poll);
  void RunShared(const SharedTask& task, std::int32_t participant, EnvRange envs);
  std::int32_t ChunkSize(std::int32_t sent) const;
  bool IsCheap(std::int64_t count) const;
  // Tells if the caller steps a synchronous round of `count` alone, as one chunk.
  bool RunsInline(std::int64_t count) const;
  // Synchronous: the caller is participant 0; asynchronous: it has the last number.
  std::int32_t CallerParticipant() const { return synchronous_ ? 0 : num_threads_; }
  std::int32_t WorkerParticipant(std::int32_t worker) const {
    return worker + (synchronous_ ? 1 : 0);
  }

  ChunkRunner& runner_;
  const std::int32_t num_threads_;
  const std::int32_t num_workers_;
  const bool synchronous_;
  const std::int64_t step_cost_ns_;
  const std::int32_t together_;
  const std::vector<std::int32_t> pin_cpus_;
  const bool light_;    // a step is cheaper than a claim of its own
  const bool reserve_;  // the caller is one of num_threads, so the last worker is in reserve
  const std::int64_t reserve_limit_;  // queued environments for which the last worker joins
  const std::vector<std::int32_t> all_envs_;

  // for a round of all environments: their ranges
  RoundRanges ranges_;
  const std::int32_t whole_chunk_;  // how many environments of it are claimed at once
  // the next fields are written only while no environments are left to claim
  std::atomic<const SharedTask*> shared_{nullptr};
  std::atomic<std::int32_t> claim_;  // whole_chunk_, or that of shared_
  std::atomic<std::int32_t> shared_done_{0};
  std::atomic<bool> shared_good_{true};
  Event shared_event_;

  // for all other sends: environments one by one
  WorkQueue queue_;
  std::atomic<std::int64_t> round_position_{0};  // synchronous: queue position of row 0
  std::atomic<std::int32_t> chunk_{1};

  // whether a cheap synchronous round waits for the caller of Recv, which runs it after the sender
  // has written these members
  bool whole_inline_ = false;
  std::vector<std::int32_t> inline_envs_;

  Event work_event_;
  Event reserve_event_;  // wakes the last worker, where that is in reserve
  std::atomic<bool> stopped_{false};
  std::vector<std::thread> threads_;
};

}  // namespace rollouts
