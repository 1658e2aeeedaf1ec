// SPDX-License-Identifier: Apache-2.0
// T steps of environments with a native policy: observe, compute, sample, step, write row t. A
// thread takes some environments through all T steps before it takes others, so that nobody waits
// for anybody in between. Where running statistics are updated, all wait for each step: it is
// counted whole before its rows are scaled, as when it is received.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "rollouts/core/spec.h"
#include "rollouts/data/column_digests.h"
#include "rollouts/policy/kernels.h"
#include "rollouts/policy/native_policy.h"
#include "rollouts/pool/cpu_pool.h"
#include "rollouts/pool/env_batch.h"
#include "rollouts/pool/round_ranges.h"

namespace rollouts::policy {

// The returns that a rollout comes with.
struct ReturnsRule {
  double gamma = 1;
  double gae_lambda = 1;
  std::int64_t n = 0;  // n-step returns; 0: generalised advantage estimation
};

// Arrays for a rollout; borrows C-contiguous arrays of T steps of B rows: environments with one
// agent, or all agents of a group, environment by environment.
struct RolloutArrays {
  std::int32_t steps = 0;
  std::int32_t rows = 0;
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
  std::uint8_t* active = nullptr;  // (T, B): of agents alone
  float* last_value = nullptr;  // (B,)
  // null where nobody wants them
  float* inputs = nullptr;   // (T, B, k): what the head reads
  float* entropy = nullptr;  // (T, B): of what actions are drawn from
  // (T + 1, B, A): nonzero for actions that may be taken, as info["action_mask"] says; the first row
  // is read.
  std::uint8_t* action_mask = nullptr;
  float* advantage = nullptr;  // (T, B), with target: as `returns` says
  float* target = nullptr;
  ReturnsRule returns = {};
  ColumnDigests digests = {};  // (B,): null where nobody wants them
  // For a policy with memory, states (B, s) that row 0 meets, unless its episode begins; written
  // when the rollout has ended, for the next one.
  float* state = nullptr;
  std::uint8_t* begins = nullptr;  // (B,): whose next observation is the first of an episode
  float* policy_state = nullptr;   // (kept_states, B, s): what the first rows met
  std::int32_t kept_states = 0;
};

// The last observation of row `row`, whose episode ended in step t.
struct FinalObs {
  std::int32_t t = 0;
  std::int32_t row = 0;
  std::vector<std::uint8_t> obs;
};

// A policy and the rollout of the rows that it acts for. Both outlive what is made of it.
struct PolicyRollout {
  const NativePolicy& policy;
  const RolloutArrays& arrays;
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
    BatchFinisher* finisher = nullptr;  // called for each step; null: nobody waits
    std::int32_t num_envs = 0;
  };

  // One part for environments with one agent, else one for each group; policies fit.
  Rollout(const EnvSpec& spec, std::span<const PolicyRollout> parts, Settings settings);
  ~Rollout();

  // Takes environments [range.first, ...) through all steps, a chunk after the other. Their actions
  // are written to `actions`, which `work` reads. Returns env-steps made. Does not throw.
  // With a finisher, takes them through one step.
  std::int64_t Run(EnvBatch& envs, const Work& work, std::uint8_t* actions, EnvRange range);

  // Counts a step that all environments have made, with a finisher. False at the end.
  bool Next(std::span<const Command> commands);

  // Polls. By the thread that made the rollout.
  void Poll();
  void Stop() { stopped_.store(true, std::memory_order_release); }
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

  // Throws what ended it, once every Run has returned.
  void ThrowIfFailed() const;
  // For each part, by t and row.
  std::vector<std::vector<FinalObs>> TakeFinalObs();

 private:
  class Part;
  struct Outcome;
  friend class PolicyRows;

  using Clock = std::chrono::steady_clock;

  // The rows that one policy acts for, and where they are among an environment's agents.
  struct Rows {
    const NativePolicy* policy = nullptr;
    RolloutArrays arrays;
    const GroupSpec* group = nullptr;  // null: environments with one agent
    const SpaceSpec* observation = nullptr;
    const SpaceSpec* action = nullptr;
    std::int32_t num_agents = 1;   // rows of one environment
    std::int32_t first_agent = 0;  // among those of all groups
    std::int32_t all_agents = 1;
    std::int64_t first_action = 0;  // bytes before it in an environment's action
    std::int64_t agent_action_bytes = 0;
  };

  std::unique_ptr<Part> TakePart();
  bool PollIfDue();
  void Fail(std::exception_ptr error);
  void KeepFinal(std::size_t part, std::int32_t t, std::int32_t row,
                 std::span<const std::uint8_t> obs);

  const EnvSpec& spec_;
  const std::int32_t mask_info_;  // the info that says what may be done; -1: none
  std::vector<Rows> rows_;
  const Settings settings_;
  const Kernels& kernels_;
  const std::thread::id thread_;  // the thread that polls
  Clock::time_point next_poll_;   // the polling thread's
  std::atomic<bool> stopped_{false};

  // with a finisher: the step in hand, and what came of the one before
  std::int32_t t_ = 0;  // changes only between steps
  std::unique_ptr<Outcome> outcome_;

  std::mutex mutex_;
  std::vector<std::unique_ptr<Part>> idle_;       // guarded by mutex_: whom no thread uses
  std::exception_ptr error_;                      // guarded by mutex_
  std::vector<std::vector<FinalObs>> final_obs_;  // guarded by mutex_ until all have returned
};

// Throws SpecError where a pool's autoreset mode leaves no rollout to be collected.
void CheckCollects(const CpuPool& pool);

struct CollectOptions {
  bool keep_final_obs = false;
  // Called about every 50 ms by the caller's thread; what it throws ends the rollout.
  std::function<void()> poll;
  // Finishes the rows of each step together, after the pool's own.
  BatchFinisher* finisher = nullptr;
};

// Steps all environments of a pool T times with a policy, or one for each group of agents, by all
// its threads. They must have been reset and be at rest, and autoreset in the same step. Returns the
// final observations of each part, if they are kept, by t and row. Throws SpecError where policies
// and pool do not fit or a policy returns nan, EnvError, ClosedError, and what `poll` throws; the
// rollout is lost then and the environments are somewhere in it.
std::vector<std::vector<FinalObs>> Collect(CpuPool& pool, std::span<const PolicyRollout> parts,
                                           const CollectOptions& options);

}  // namespace rollouts::policy
