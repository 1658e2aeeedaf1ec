// SPDX-License-Identifier: Apache-2.0
// T steps of environments with a native policy: observe, compute, sample, step, write row t. A
// thread takes some environments through all T steps before it takes others, so that nobody waits
// for anybody in between.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rollouts/core/spec.h"
#include "rollouts/policy/kernels.h"
#include "rollouts/policy/native_policy.h"
#include "rollouts/pool/cpu_pool.h"
#include "rollouts/pool/env_batch.h"
#include "rollouts/pool/round_ranges.h"

namespace rollouts::policy {

// Where a rollout is written; borrows C-contiguous arrays of T steps of B environments.
struct RolloutArrays {
  std::int32_t steps = 0;
  std::int32_t envs = 0;
  std::uint8_t* obs = nullptr;     // (T + 1, B, obs_bytes); the first row is read
  std::uint8_t* action = nullptr;  // (T, B): int64; or (T, B, d) of the space's dtype
  float* log_prob = nullptr;       // (T, B), as are the next
  float* value = nullptr;
  float* reward = nullptr;
  std::uint8_t* terminated = nullptr;
  std::uint8_t* truncated = nullptr;
  float* bootstrap_value = nullptr;
  double* episode_return = nullptr;
  std::int32_t* episode_length = nullptr;
  float* last_value = nullptr;  // (B,)
  float* inputs = nullptr;      // (T, B, k): what the head reads; null where nobody wants it
  // Of a policy with memory: the states (B, s) that row 0 meets, unless its episode begins; written
  // when the rollout has ended, for the next one.
  float* state = nullptr;
  std::uint8_t* begins = nullptr;  // (B,): whose next observation is the first of an episode
  float* policy_state = nullptr;   // (kept_states, B, s): what the first rows met
  std::int32_t kept_states = 0;
};

// The last observation of an episode that ended in step t of environment `env`.
struct FinalObs {
  std::int32_t t = 0;
  std::int32_t env = 0;
  std::vector<std::uint8_t> obs;
};

// One rollout. Run may be called by several threads for different environments; whatever ends it
// early ends it for all.
class Rollout {
 public:
  struct Settings {
    std::int32_t chunk = kColumns;  // environments that a thread takes through the steps together
    std::int32_t env_id_offset = 0;
    bool keep_final_obs = false;
    // Called now and then by the thread that made the rollout; what it throws ends the rollout.
    std::function<void()> poll;
    std::function<void(std::int32_t env, const std::string& message)> fail;
    bool stop_at_failure = false;
  };

  // `policy`, which fits, and the arrays outlive the rollout.
  Rollout(const EnvSpec& spec, const NativePolicy& policy, const RolloutArrays& arrays,
          Settings settings);

  // Takes environments [range.first, ...) through all steps, a chunk after the other. Their actions
  // are written to `actions`, which `work` reads. Returns env-steps made. Does not throw.
  std::int64_t Run(EnvBatch& envs, const Work& work, std::uint8_t* actions, EnvRange range);

  // Polls. By the thread that made the rollout.
  void Poll();
  void Stop() { stopped_.store(true, std::memory_order_release); }
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

  // Throws what ended it, once every Run has returned.
  void ThrowIfFailed() const;
  std::vector<FinalObs>& final_obs() { return final_obs_; }

 private:
  class Part;

  using Clock = std::chrono::steady_clock;

  bool PollIfDue();
  void Fail(std::exception_ptr error);

  const EnvSpec& spec_;
  const NativePolicy& policy_;
  const RolloutArrays arrays_;
  const Settings settings_;
  const Kernels& kernels_;
  const std::thread::id thread_;  // that polls
  Clock::time_point next_poll_;   // that thread's
  std::atomic<bool> stopped_{false};

  std::mutex mutex_;
  std::exception_ptr error_;         // guarded by mutex_
  std::vector<FinalObs> final_obs_;  // guarded by mutex_ until all have returned
};

// Throws SpecError where a pool's autoreset mode leaves no rollout to be collected.
void CheckCollects(const CpuPool& pool);

struct CollectOptions {
  bool keep_final_obs = false;
  // Called about every 50 ms by the caller's thread; what it throws ends the rollout.
  std::function<void()> poll;
};

// Steps all environments of a pool T times with a policy, by all its threads. They must have been
// reset and be at rest, and autoreset in the same step. Returns the final observations, if they are
// kept, by t and environment. Throws SpecError where policy and pool do not fit or the policy
// returns nan, EnvError, ClosedError, and what `poll` throws; the rollout is lost then and the
// environments are somewhere in it.
std::vector<FinalObs> Collect(CpuPool& pool, const NativePolicy& policy,
                              const RolloutArrays& arrays, const CollectOptions& options);

}  // namespace rollouts::policy
