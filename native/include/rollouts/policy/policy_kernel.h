// SPDX-License-Identifier: Apache-2.0
// A policy as a kernel: one launch between two steps of a pool writes what came of the last one and
// chooses the next actions. Knows nothing of environments but their clocks and rows; a thread has a
// row: an environment, or an agent of one group.
#pragma once

#include "rollouts/data/gae.h"
#include "rollouts/data/nstep.h"
#include "rollouts/device/launch.h"
#include "rollouts/policy/head_loops.h"
#include "rollouts/policy/layer_loops.h"

#if !defined(__CUDACC_RTC__)
#include <vector>
#endif

namespace rollouts::policy {

// The rows of the scratch memory that one of the network's outputs takes.
struct OutputPlace {
  std::int32_t row;
  std::int32_t size;
};

// A policy as a kernel reads it. All stays from launch to launch but the numbers pointed to.
struct KernelPolicy {
  const Instruction* instructions;
  const float* params;     // as Network::Pack gives them
  const std::int32_t* nvec;
  const OutputPlace* states;  // what the states become
  const float* initial;    // (state_size,)
  const float* bounds;     // for a squashed action, see HeadInputs; or null
  Head head;
  std::int32_t num_instructions;
  std::int32_t num_rows;      // those of the network's scratch memory
  std::int32_t num_elements;  // in a MultiDiscrete action
  std::int32_t num_states;
  std::int32_t obs_size;
  std::int32_t state_size;
  OutputPlace first, second, value;  // size 0 where there is none
};

// The agents that act: `num_agents` of the environment's `all_agents`, from `first_agent` on.
struct KernelAgents {
  std::int32_t num_agents;
  std::int32_t first_agent;
  std::int32_t all_agents;
};

// Rows of the last step as environments wrote them; null `terminated`: there was none.
struct SeenRows {
  const std::uint8_t* terminated;
  std::uint8_t* truncated;     // agents who left before are added where the episode ended
  const std::uint8_t* active;  // null: environments with one agent
  const std::uint8_t* ended;   // (N,), where there are agents
  const void* final_obs;
  float* bootstrap_value;
};

// Rows for the choice of the next actions; null `log_prob`: none is made.
struct ChosenRows {
  void* action;       // int64 (rows,), int32 (rows, elements) or float (rows, d), as sampled
  float* env_action;  // (rows, d), clipped to the bounds; null: those of discrete actions
  const float* low;   // (d,), as is the next
  const float* high;
  float* log_prob;
  float* value;
  float* entropy;       // null unless wanted, as are the next
  float* inputs;        // (rows, sizes of what the head reads)
  float* policy_state;  // (rows, state_size): what the observations met
};

// Returns of a whole rollout, once its last observation is valued; null `advantage`: not wanted.
struct ReturnsRows {
  Fragment<float> fragment;  // all rows
  Returns out;
  double gamma;
  double gae_lambda;
  std::int64_t n;  // > 0: n-step returns
};

struct PolicyLaunch {
  std::int64_t num_rows;
  KernelPolicy policy;
  KernelAgents agents;
  ClockColumns clock;
  const void* obs;    // (rows, obs_size)
  float* state;       // (state_size, rows)
  // (rows,): whose episode ended in the last step of a rollout, for the next one, whose weights may
  // begin otherwise. Written by a rollout's last launch, read by the first; else null.
  std::uint8_t* begins;
  // (threads / 16, num_rows + size of an action + elements, 16); null: each block has its own in the
  // memory that its threads share.
  float* scratch;
  std::int64_t scratch_rows;
  SeenRows seen;
  ChosenRows chosen;
  float* last_value;  // (rows,): of the observation, where no choice is made
  ReturnsRows returns;
  std::uint64_t* fault;
};

template <typename Obs>
class PolicyKernel {
 public:
  // The rows of one block's threads: as many threads as there is scratch memory for take all.
  ROLLOUTS_HD static void Run(const Block& block, std::int64_t num_threads,
                              const PolicyLaunch& launch) {
    block.EachThread([&](std::int32_t thread) {
      const std::int64_t own = block.index() * block.num_threads() + thread;
      float* rows = launch.scratch ? ColumnOf(own, launch.scratch, launch)
                                   : ColumnOf(thread, static_cast<float*>(block.memory()), launch);
      for (std::int64_t row = own; row < launch.num_rows; row += num_threads) {
        PolicyKernel(launch, row, rows).RunRow();
      }
    });
  }

  // Bytes of a block's scratch memory.
  static std::int64_t ScratchBytes(std::int32_t num_threads, const PolicyLaunch& launch) {
    return std::int64_t{num_threads} * launch.scratch_rows * sizeof(float);
  }

 private:
  ROLLOUTS_HD static float* ColumnOf(std::int64_t thread, float* scratch,
                                     const PolicyLaunch& launch) {
    return scratch + thread / kColumns * launch.scratch_rows * kColumns + thread % kColumns;
  }

  ROLLOUTS_HD PolicyKernel(const PolicyLaunch& launch, std::int64_t row, float* rows)
      : launch_(launch),
        policy_(launch.policy),
        row_(row),
        env_(row / launch.agents.num_agents),
        rows_(rows) {}

  ROLLOUTS_HD void RunRow() {
    if (launch_.seen.terminated) See();
    if (launch_.chosen.log_prob) {
      Choose();
    } else if (launch_.last_value) {
      float value = 0;
      if (policy_.value.size > 0) {
        Forward(static_cast<const Obs*>(launch_.obs));
        value = rows_[policy_.value.row * kColumns];
      }
      CheckFinite(value);
      launch_.last_value[row_] = value;
      if (launch_.returns.out.advantage) EstimateReturns();
    }
  }

  // Takes the results of the last step.
  ROLLOUTS_HD void See() {
    const SeenRows& seen = launch_.seen;
    const bool terminated = seen.terminated[row_] != 0;
    bool truncated = seen.truncated[row_] != 0;
    bool active = true;
    if (seen.active) {
      active = seen.active[row_] != 0;
      // an agent that left before waits for the others
      truncated |= seen.ended[env_] != 0 && !active;
      seen.truncated[row_] = truncated;
    }
    float value = 0;
    if (truncated && !terminated && active && policy_.value.size > 0) {
      Forward(static_cast<const Obs*>(seen.final_obs));
      value = rows_[policy_.value.row * kColumns];
      CheckFinite(value);
    }
    seen.bootstrap_value[row_] = value;
    // only now: final observations are valued with what the episode left
    const bool is_over = terminated || truncated;
    if (is_over) BeginEpisode();
    if (launch_.begins && !launch_.chosen.log_prob) launch_.begins[row_] = is_over;
  }

  ROLLOUTS_HD void Choose() {
    const ChosenRows& chosen = launch_.chosen;
    // after a reset nobody has told of an end
    const bool begins = launch_.begins && launch_.begins[row_] != 0;
    if (begins || launch_.clock.elapsed_steps[env_] == 0) BeginEpisode();
    if (chosen.policy_state) {
      float* to = chosen.policy_state + row_ * policy_.state_size;
      for (std::int32_t k = 0; k < policy_.state_size; ++k) to[k] = *StateAt(k);
    }
    Forward(static_cast<const Obs*>(launch_.obs));
    KeepStates();

    HeadOutputs out;
    out.with_entropy = chosen.entropy != nullptr;
    out.box = rows_ + std::int64_t{policy_.num_rows} * kColumns;
    out.elements = reinterpret_cast<std::int32_t*>(out.box + policy_.first.size * kColumns);
    Act(policy_.head, Inputs(), Keys(), out);
    const float value = policy_.value.size > 0 ? rows_[policy_.value.row * kColumns] : 0;
    const bool is_good = CheckFinite(value) && CheckFinite(out.log_prob[0]);
    chosen.log_prob[row_] = out.log_prob[0];
    chosen.value[row_] = value;
    if (chosen.entropy) chosen.entropy[row_] = out.entropy[0];
    if (chosen.inputs) TakeInputs();
    WriteAction(out, is_good);
  }

  // Runs the network on this row of `obs` and the states.
  ROLLOUTS_HD void Forward(const Obs* obs) {
    obs += row_ * policy_.obs_size;
    float* to = rows_;
    for (std::int32_t k = 0; k < policy_.obs_size; ++k, to += kColumns) {
      *to = static_cast<float>(obs[k]);
    }
    for (std::int32_t k = 0; k < policy_.state_size; ++k, to += kColumns) *to = *StateAt(k);
    policy::Forward(policy_.instructions, policy_.num_instructions, policy_.params, rows_, kSpan);
  }

  ROLLOUTS_HD HeadInputs Inputs() const {
    HeadInputs inputs;
    inputs.first = rows_ + std::int64_t{policy_.first.row} * kColumns;
    inputs.size = policy_.first.size;
    inputs.second = rows_ + std::int64_t{policy_.second.row} * kColumns;
    inputs.second_size = policy_.second.size;
    inputs.bounds = policy_.bounds;
    inputs.nvec = policy_.nvec;
    inputs.num_elements = policy_.num_elements;
    return inputs;
  }

  // The same as on the CPU: see PolicyRows::KeysOf.
  ROLLOUTS_HD NoiseKeys Keys() const {
    const KernelAgents& agents = launch_.agents;
    const auto agent = static_cast<std::int32_t>(row_ % agents.num_agents);
    NoiseKeys keys;
    keys.env_id[0] = launch_.clock.env_id[env_] * static_cast<std::uint32_t>(agents.all_agents) +
                     static_cast<std::uint32_t>(agents.first_agent + agent);
    keys.episode[0] = launch_.clock.next_episode[env_] - 1;
    keys.step[0] = static_cast<std::uint32_t>(launch_.clock.elapsed_steps[env_]);
    return keys;
  }

  ROLLOUTS_HD void TakeInputs() const {
    float* to = launch_.chosen.inputs + row_ * (policy_.first.size + policy_.second.size);
    to = TakeOutput(policy_.first, to);
    TakeOutput(policy_.second, to);
  }

  ROLLOUTS_HD float* TakeOutput(const OutputPlace& place, float* to) const {
    for (std::int32_t k = 0; k < place.size; ++k) *to++ = rows_[(place.row + k) * kColumns];
    return to;
  }

  // As sampled to the rollout, clipped to the environment; of numbers that are not finite nothing
  // but 0, for which the caller is told.
  ROLLOUTS_HD void WriteAction(const HeadOutputs& out, bool is_good) const {
    const ChosenRows& chosen = launch_.chosen;
    if (policy_.num_elements > 0) {
      auto* to = static_cast<std::int32_t*>(chosen.action) + row_ * policy_.num_elements;
      for (std::int32_t e = 0; e < policy_.num_elements; ++e) to[e] = out.elements[e * kColumns];
    } else if (IsDiscrete(policy_.head.kind)) {
      static_cast<std::int64_t*>(chosen.action)[row_] = out.index[0];
    } else {
      const std::int64_t at = row_ * policy_.first.size;
      for (std::int32_t d = 0; d < policy_.first.size; ++d) {
        const float sampled = out.box[d * kColumns];
        static_cast<float*>(chosen.action)[at + d] = sampled;
        const float low = chosen.low[d], high = chosen.high[d];
        const float clipped = sampled < low ? low : high < sampled ? high : sampled;
        chosen.env_action[at + d] = is_good ? clipped : 0;
      }
    }
  }

  ROLLOUTS_HD void EstimateReturns() const {
    const ReturnsRows& returns = launch_.returns;
    Fragment<float> own = returns.fragment;
    own.envs = 1;
    own.reward += row_;
    own.value += row_;
    own.terminated += row_;
    own.truncated += row_;
    own.bootstrap_value += row_;
    own.last_value += row_;
    const Returns out{returns.out.advantage + row_, returns.out.target + row_};
    if (returns.n > 0) {
      Nstep(own, returns.gamma, returns.n, out);
    } else {
      Gae(own, returns.gamma, returns.gae_lambda, out);
    }
  }

  ROLLOUTS_HD float* StateAt(std::int32_t k) const {
    return launch_.state + k * launch_.num_rows + row_;
  }
  ROLLOUTS_HD void BeginEpisode() const {
    for (std::int32_t k = 0; k < policy_.state_size; ++k) *StateAt(k) = policy_.initial[k];
  }
  ROLLOUTS_HD void KeepStates() const {
    std::int32_t k = 0;
    for (std::int32_t s = 0; s < policy_.num_states; ++s) {
      const OutputPlace place = policy_.states[s];
      for (std::int32_t i = 0; i < place.size; ++i, ++k) {
        *StateAt(k) = rows_[(place.row + i) * kColumns];
      }
    }
  }

  // Nothing can be thrown here: the next call that asks names the environment.
  ROLLOUTS_HD bool CheckFinite(float number) const {
    const bool is_good = number - number == 0;
    if (!is_good) Report(launch_.fault, launch_.clock.env_id[env_], Fault::kPolicy);
    return is_good;
  }

  const PolicyLaunch& launch_;
  const KernelPolicy& policy_;
  const std::int64_t row_;
  const std::int64_t env_;
  float* const rows_;  // column of this thread in its group's scratch memory
};

}  // namespace rollouts::policy

// The entry that loaders look for. `OBS` is the type of an observation's numbers.
#if defined(__CUDACC_RTC__)
#define ROLLOUTS_POLICY_KERNEL(OBS)                                                           \
  extern "C" __global__ void __launch_bounds__(128)                                           \
      rollouts_policy(rollouts::policy::PolicyLaunch launch) {                                \
    rollouts::policy::PolicyKernel<OBS>::Run(                                                 \
        rollouts::Block(), static_cast<std::int64_t>(gridDim.x) * blockDim.x, launch);        \
  }
#else
#define ROLLOUTS_POLICY_KERNEL(OBS)                                                           \
  extern "C" void rollouts_policy(const rollouts::policy::PolicyLaunch* launch,               \
                                  std::int64_t num_blocks, std::int32_t num_threads,          \
                                  std::int32_t backwards) {                                   \
    using Kernel = rollouts::policy::PolicyKernel<OBS>;                                       \
    const std::int64_t bytes = launch->scratch ? 0 : Kernel::ScratchBytes(num_threads, *launch); \
    std::vector<std::uint8_t> memory(static_cast<std::size_t>(bytes));                        \
    for (std::int64_t i = 0; i < num_blocks; ++i) {                                           \
      const std::int64_t index = backwards ? num_blocks - 1 - i : i;                          \
      const rollouts::Block block(index, num_threads, backwards, memory.data());              \
      Kernel::Run(block, num_blocks * num_threads, *launch);                                  \
    }                                                                                         \
  }                                                                                           \
  extern "C" __attribute__((used)) inline std::int64_t rollouts_launch_bytes() {              \
    return sizeof(rollouts::policy::PolicyLaunch);                                            \
  }
#endif
