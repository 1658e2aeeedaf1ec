// SPDX-License-Identifier: Apache-2.0
// Statistics of how a pool spends its time: counts and histograms that add almost nothing to the
// cost of a step.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rollouts/core/engine_choice.h"
#include "rollouts/core/step.h"
#include "rollouts/support/mutex.h"

namespace rollouts {

// A number that one thread at a time adds to and any thread reads.
class Tally {
 public:
  void Add(std::int64_t value) {
    value_.store(value_.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
  }
  std::int64_t Get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};
};

// Durations on a logarithmic scale, 16 buckets to the octave: each duration is within 3 % of its
// bucket's middle. From 1 ps to five hours.
class TimeHistogram {
 public:
  static constexpr std::int32_t kPerOctave = 16;
  static constexpr std::int32_t kOctaves = 50;
  static constexpr std::int32_t kBuckets = kPerOctave * (kOctaves + 1);

  void Add(std::int64_t picoseconds, std::int64_t times) { buckets_[Bucket(picoseconds)].Add(times); }
  std::int64_t Get(std::int32_t bucket) const { return buckets_[bucket].Get(); }

  static std::int32_t Bucket(std::int64_t picoseconds);
  // The middle of a bucket.
  static double Seconds(std::int32_t bucket);

 private:
  std::array<Tally, kBuckets> buckets_;
};

// Percentiles of durations in seconds; NaN when there are none.
struct TimeSummary {
  std::int64_t count = 0;
  double p50 = 0, p90 = 0, p99 = 0, max = 0;
};

struct StepStatsSnapshot {
  std::int64_t env_steps = 0;
  std::int64_t recvs = 0;
  std::int64_t env_errors = 0;
  EngineSteps engine_steps;
  TimeSummary step_time, queue_wait, batch_wait;
  std::vector<double> env_step_time;  // s per environment; NaN where none was timed
};

// Environments whose step costs a microsecond or more are timed at every step. Lighter ones are
// timed in one of 32 sends, chosen at random, and by chunk: the time is divided equally among the
// chunk's environments.
//
// Threads: a participant (a worker or the caller of Recv) writes its own numbers itself. An
// environment's numbers are written by the participant that steps it, before its row is published.
// Numbers of sends are written under the pool's send_mutex_, those of recvs under its recv_mutex_.
// So every number has one writer at a time. Reset sets no number back: it stores the numbers of
// that moment, which Read subtracts, so that writers and Reset do not race.
class StepStats {
 public:
  // `engines`: counts that environments keep themselves.
  StepStats(std::int32_t num_envs, std::int32_t participants, std::int32_t step_cost_ns,
            std::vector<std::shared_ptr<const EngineTallies>> engines = {});

  // Notes when environments are sent; call before threads can claim them.
  void Sent(std::span<const std::int32_t> envs) {
    const std::int64_t now = send_sampler_.Next() ? Now() : 0;
    for (const std::int32_t env : envs) sent_at_[env] = now;
  }
  void SentAll() { all_sent_at_ = send_sampler_.Next() ? Now() : 0; }

  // Counts and times one claim of a participant. It lives while the claim is stepped; Finish is
  // called for the next `count` environments before their rows are published.
  class ChunkTimer {
   public:
    // `sent_all`: SentAll noted them. `uniform`: all their commands are of one kind.
    ChunkTimer(StepStats& stats, std::int32_t participant, std::span<const std::int32_t> envs,
               const Command* commands, bool uniform, bool sent_all)
        : stats_(stats),
          participant_(participant),
          rest_(envs),
          commands_(commands),
          uniform_(uniform),
          sent_all_(sent_all) {
      Begin();
    }
    void Finish(std::int32_t count) {
      stats_.AddChunk(participant_, rest_.first(count), CountSteps(count), sent_at_, begin_);
      rest_ = rest_.subspan(count);
      if (!rest_.empty()) Begin();
    }

   private:
    void Begin() {
      sent_at_ = sent_all_ ? stats_.all_sent_at_ : stats_.sent_at_[rest_.front()];
      begin_ = sent_at_ != 0 ? Now() : 0;
    }
    std::int64_t CountSteps(std::int32_t count) const {
      if (uniform_) return commands_[rest_.front()] == Command::kStep ? count : 0;
      std::int64_t steps = 0;
      for (const std::int32_t env : rest_.first(count)) steps += commands_[env] == Command::kStep;
      return steps;
    }
    StepStats& stats_;
    const std::int32_t participant_;
    std::span<const std::int32_t> rest_;
    const Command* const commands_;
    const bool uniform_;
    const bool sent_all_;
    std::int64_t sent_at_ = 0;  // 0: not timed
    std::int64_t begin_ = 0;
  };

  // Times a recv, including earlier attempts that a deadline ended.
  class RecvTimer {
   public:
    explicit RecvTimer(StepStats& stats) : stats_(stats), begin_(stats.recv_timed_ ? Now() : 0) {}
    ~RecvTimer() {
      if (begin_ != 0) stats_.waited_ns_ += Now() - begin_;
      if (received_) stats_.AddRecv();
    }
    RecvTimer(const RecvTimer&) = delete;
    RecvTimer& operator=(const RecvTimer&) = delete;
    void Received() { received_ = true; }

   private:
    StepStats& stats_;
    const std::int64_t begin_;
    bool received_ = false;
  };

  // Counts steps that a participant made untimed.
  void AddSteps(std::int32_t participant, std::int64_t steps) {
    by_participant_[participant].steps.Add(steps);
  }

  void AddError() { errors_.fetch_add(1, std::memory_order_relaxed); }

  // Counts since construction or Reset. From any thread, at any time.
  StepStatsSnapshot Read() const;
  void Reset();

 private:
  static constexpr std::int32_t kAlwaysFromNs = 1'000;
  static constexpr std::int32_t kSampleEvery = 32;  // one of so many sends of light envs is timed
  struct alignas(64) Participant {
    Tally steps;
    TimeHistogram step_time, queue_wait;
  };
  struct EnvTime {
    Tally picoseconds, steps;
  };
  // All numbers at one moment.
  struct Totals {
    std::int64_t steps = 0, recvs = 0, errors = 0;
    EngineSteps engines;
    std::vector<std::int64_t> step_time, queue_wait, batch_wait;
    std::vector<std::int64_t> env_picoseconds, env_steps;
  };

  // Returns true at every call, or at one of kSampleEvery.
  class Sampler {
   public:
    Sampler(bool always, std::uint32_t seed) : always_(always), random_(seed) {}
    bool Next() {
      if (always_) return true;
      if (skip_-- > 0) return false;
      // a random number: a fixed one could meet the same environment each time
      random_ = random_ * 1664525u + 1013904223u;
      skip_ = static_cast<std::int32_t>((random_ >> 16) % (2 * kSampleEvery - 1));
      return true;
    }

   private:
    const bool always_;
    std::uint32_t random_;
    std::int32_t skip_ = 0;
  };

  static std::int64_t Now() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  }
  void AddChunk(std::int32_t participant, std::span<const std::int32_t> envs, std::int64_t steps,
                std::int64_t sent_at, std::int64_t begin) {
    by_participant_[participant].steps.Add(steps);
    if (begin != 0) AddTimes(participant, envs, steps, sent_at, begin);
  }
  void AddTimes(std::int32_t participant, std::span<const std::int32_t> envs, std::int64_t steps,
                std::int64_t sent_at, std::int64_t begin);
  void AddRecv();
  Totals Sum() const;

  const std::int32_t num_envs_;
  const std::int32_t participants_;
  const std::unique_ptr<Participant[]> by_participant_;
  const std::unique_ptr<EnvTime[]> by_env_;
  const std::vector<std::shared_ptr<const EngineTallies>> engines_;

  // written under the pool's send_mutex_; read by the participant that claimed the environments
  // later
  Sampler send_sampler_;
  std::vector<std::int64_t> sent_at_;  // ns by environment; 0: its step is not timed
  std::int64_t all_sent_at_ = 0;

  // written under the pool's recv_mutex_
  Sampler recv_sampler_;
  bool recv_timed_;
  std::int64_t waited_ns_ = 0;
  Tally recvs_;
  TimeHistogram batch_wait_;

  std::atomic<std::int64_t> errors_{0};

  mutable Mutex base_mutex_;
  Totals base_ ROLLOUTS_GUARDED_BY(base_mutex_);  // the numbers at the last Reset
};

}  // namespace rollouts
