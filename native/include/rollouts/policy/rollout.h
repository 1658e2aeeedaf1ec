// SPDX-License-Identifier: Apache-2.0
// T steps of environments with a native policy: observe, compute, sample, step, write row t. A
// thread takes some environments through all T steps before it takes others, so that no thread
// waits in between. Where running statistics are updated, all threads wait after each step, because
// its rows are counted before any of them is scaled, as in a step that recv returns.
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

// The estimator of a rollout's returns.
struct ReturnsRule {
  double gamma = 1;
  double gae_lambda = 1;
  std::int64_t n = 0;  // n-step returns; 0: generalised advantage estimation
};

// Options of a rollout, as `Asked.rules` of Python names them. A new one is a field and a line of
// Visit here, and its use in policy_rows.h.
struct CollectRules {
  bool keep_final_obs = false;
  ReturnsRule returns = {};  // defines advantage and target

  // Calls visit(name, field) for each option.
  template <typename Visitor>
  void Visit(Visitor&& visit) {
    visit("keep_final_obs", keep_final_obs);
    visit("returns", returns);
  }
};

// Arrays for a rollout; borrows C-contiguous arrays of T steps of B rows. Rows are environments
// with one agent, or all agents of a group, environment by environment.
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
  std::uint8_t* active = nullptr;  // (T, B): only for agents
  float* last_value = nullptr;  // (B,)
  // null where they are not wanted
  float* inputs = nullptr;   // (T, B, k): the head's inputs
  float* entropy = nullptr;  // (T, B): of the actions' distribution
  // (T + 1, B, A): nonzero for allowed actions, from info["action_mask"]; the first row is read.
  std::uint8_t* action_mask = nullptr;
  float* advantage = nullptr;  // (T, B), as is target: estimated by CollectRules::returns
  float* target = nullptr;
  ColumnDigests digests = {};  // (B,): null where they are not wanted
  // For the log of a run; null where they are not wanted.
  std::uint8_t* action_bytes = nullptr;  // (T, B): discrete actions again, as bytes
  // (B,): steps for which an action was chosen. A rollout that fails leaves steps without one.
  std::int32_t* num_chosen = nullptr;
  // For a policy with memory: its states (B, s) for row 0, unless an episode begins there. Written
  // at the end of the rollout, for the next one.
  float* state = nullptr;
  std::uint8_t* begins = nullptr;  // (B,): the next observation is the first of an episode
  float* policy_state = nullptr;   // (kept_states, B, s): the states for the first rows
  std::int32_t kept_states = 0;
};

// The last observation of row `row`, whose episode ended in step t.
struct FinalObs {
  std::int32_t t = 0;
  std::int32_t row = 0;
  std::vector<std::uint8_t> obs;
};

// A policy, and the arrays of the rows that it acts for. Both must outlive the rollout.
struct PolicyRollout {
  const NativePolicy& policy;
  const RolloutArrays& arrays;
};

// One rollout. Several threads may call Run for different environments; an error ends the rollout
// for all.
class Rollout {
 public:
  struct Settings {
    std::int32_t chunk = kColumns;  // environments that a thread takes through the steps at once
    std::int32_t env_id_offset = 0;
    CollectRules rules;
    // Called now and then by the thread that made the rollout; an exception in it ends the rollout.
    std::function<void()> poll;
    std::function<void(std::int32_t env, const std::string& message)> fail;
    bool stop_at_failure = false;
    BatchFinisher* finisher = nullptr;  // called for each step; null: no step is waited for
    std::int32_t num_envs = 0;
  };

  // There is one part for environments with one agent, else one for each group. Policies must fit.
  Rollout(const EnvSpec& spec, std::span<const PolicyRollout> parts, Settings settings);
  ~Rollout();

  // Takes environments [range.first, ...) through all steps, one chunk after the other. Their
  // actions are written to `actions`, which `work` reads. Returns the env-steps made. Does not
  // throw. With a finisher, takes them through one step.
  std::int64_t Run(EnvBatch& envs, const Work& work, std::uint8_t* actions, EnvRange range);

  // Counts a step that all environments have made; only with a finisher. Returns false after the
  // last step.
  bool Next(std::span<const Command> commands);

  // Calls `poll`. Only for the thread that made the rollout.
  void Poll();
  void Stop() { stopped_.store(true, std::memory_order_release); }
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

  // Throws the error that ended the rollout. To be called once every Run has returned.
  void ThrowIfFailed() const;
  // The final observations of each part, in the order of t and row.
  std::vector<std::vector<FinalObs>> TakeFinalObs();

 private:
  class Part;
  struct Outcome;
  friend class PolicyRows;

  using Clock = std::chrono::steady_clock;

  // The rows that one policy acts for, and their places among an environment's agents.
  struct Rows {
    const NativePolicy* policy = nullptr;
    RolloutArrays arrays;
    const GroupSpec* group = nullptr;  // null: environments with one agent
    const SpaceSpec* observation = nullptr;
    const SpaceSpec* action = nullptr;
    std::int32_t num_agents = 1;   // rows of one environment
    std::int32_t first_agent = 0;  // number among the agents of all groups
    std::int32_t all_agents = 1;
    std::int64_t first_action = 0;  // bytes before the group's in an environment's action
    std::int64_t agent_action_bytes = 0;
  };

  std::unique_ptr<Part> TakePart();
  bool PollIfDue();
  void Fail(std::exception_ptr error);
  void KeepFinal(std::size_t part, std::int32_t t, std::int32_t row,
                 std::span<const std::uint8_t> obs);

  const EnvSpec& spec_;
  const std::int32_t mask_info_;  // number of the info with the action mask; -1: none
  std::vector<Rows> rows_;
  const Settings settings_;
  const Kernels& kernels_;
  const std::thread::id thread_;  // the thread that polls
  Clock::time_point next_poll_;   // only for that thread
  std::atomic<bool> stopped_{false};

  // with a finisher: the present step, and the results of the one before
  std::int32_t t_ = 0;  // changes only between steps
  std::unique_ptr<Outcome> outcome_;

  std::mutex mutex_;
  std::vector<std::unique_ptr<Part>> idle_;       // guarded by mutex_: used by no thread
  std::exception_ptr error_;                      // guarded by mutex_
  std::vector<std::vector<FinalObs>> final_obs_;  // guarded by mutex_ until all have returned
};

// Throws SpecError where a pool's autoreset mode allows no rollouts.
void CheckCollects(const CpuPool& pool);

struct CollectOptions {
  CollectRules rules;
  // Called about every 50 ms by the caller's thread; an exception in it ends the rollout.
  std::function<void()> poll;
  // Finishes the rows of each step, after the pool's own finisher.
  BatchFinisher* finisher = nullptr;
};

// Steps all environments of a pool T times with all its threads and with one policy, or one for
// each group of agents. The environments must be at rest, must have been reset, and use same-step
// autoreset. Returns the final observations of each part by t and row, if they are kept. Throws
// SpecError where policies and pool do not fit or a policy returns nan, EnvError, ClosedError, and
// what `poll` throws. The rollout is lost then, and the environments are at some step of it.
std::vector<std::vector<FinalObs>> Collect(CpuPool& pool, std::span<const PolicyRollout> parts,
                                           const CollectOptions& options);

}  // namespace rollouts::policy
