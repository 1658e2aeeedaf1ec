// SPDX-License-Identifier: Apache-2.0
// A policy as a kernel: one launch between two steps of a pool writes the results of the last step
// and chooses the next actions. It reads only the clocks and rows of environments. A thread
// computes the network for one row after the other.
#pragma once

#include "rollouts/policy/layer_loops.h"
#include "rollouts/policy/policy_row.h"

#if !defined(__CUDACC_RTC__)
#include <vector>
#endif

namespace rollouts::policy {

template <typename Obs>
class PolicyKernel {
 public:
  // Computes the rows of one block. The `num_threads` threads of all blocks share the rows, and
  // there is scratch memory for each thread.
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
        own_(launch, row, rows, rows + std::int64_t{launch.policy.num_rows} * kColumns),
        row_(row),
        rows_(rows) {}

  ROLLOUTS_HD void RunRow() const {
    if (launch_.seen.terminated) {
      const bool lacks_value = own_.LacksFinalValue();
      if (lacks_value) Forward(static_cast<const Obs*>(launch_.seen.final_obs));
      own_.See(lacks_value);
    }
    if (launch_.chosen.log_prob) {
      own_.BeginStep();
      Forward(static_cast<const Obs*>(launch_.obs));
      own_.Choose();
    } else if (launch_.last_value) {
      if (launch_.policy.value.size > 0) Forward(static_cast<const Obs*>(launch_.obs));
      own_.End();
    }
  }

  // Runs the network on this row of `obs` and the states.
  ROLLOUTS_HD void Forward(const Obs* obs) const {
    const KernelPolicy& policy = launch_.policy;
    obs += row_ * policy.obs_size;
    float* to = rows_;
    for (std::int32_t k = 0; k < policy.obs_size; ++k, to += kColumns) {
      *to = static_cast<float>(obs[k]);
    }
    for (std::int32_t k = 0; k < policy.state_size; ++k, to += kColumns) *to = *own_.StateAt(k);
    policy::Forward(policy.instructions, policy.num_instructions, policy.params, rows_, kSpan);
  }

  const PolicyLaunch& launch_;
  const PolicyRow own_;
  const std::int64_t row_;
  float* const rows_;  // the thread's column in the scratch memory of its kColumns threads
};

}  // namespace rollouts::policy

// The entry point that loaders look up by name. `OBS` is the type of an observation's numbers.
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
