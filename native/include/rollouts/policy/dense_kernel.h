// SPDX-License-Identifier: Apache-2.0
// A policy of linear layers as a kernel: tensor cores compute the network, and PolicyRow handles
// each row in the same launch. A warp has 16 rows at a time.
#pragma once

#include "rollouts/policy/dense_forward.h"
#include "rollouts/policy/policy_row.h"

#if !defined(__CUDACC_RTC__)
#include <vector>
#endif

namespace rollouts::policy {

template <typename Obs>
class DenseKernel {
 public:
  // Computes one block's share of the rows, which `num_blocks` blocks take in turns.
  ROLLOUTS_HD static void Run(const Block& block, std::int64_t num_blocks,
                              const PolicyLaunch& launch) {
    const std::int32_t of_block = block.num_threads() / kWarpThreads * kDenseRows;
    const std::int64_t stride = num_blocks * of_block;
    for (std::int64_t first = block.index() * of_block; first < launch.num_rows; first += stride) {
      DenseKernel(block, launch, first).RunRows();
    }
  }

 private:
  ROLLOUTS_HD DenseKernel(const Block& block, const PolicyLaunch& launch, std::int64_t first)
      : block_(block),
        launch_(launch),
        memory_(block, launch.policy.dense),
        first_(first) {}

  // Runs two passes in a loop, so that the long code of the network is compiled once. The first
  // pass computes the values of the last step's final observations, the second the outputs for the
  // present observations of all rows. Few episodes end in a step, so most warps take no part in the
  // first pass, and most blocks load no weights for it.
  ROLLOUTS_HD void RunRows() const {
    OfThreads<bool> takes_part(block_);
    const auto is_needed = [&](std::int32_t thread) { return takes_part[thread]; };
#pragma unroll 1
    for (std::int32_t pass = launch_.seen.terminated ? 0 : 1; pass < 2; ++pass) {
      block_.EachThread([&](std::int32_t thread) { takes_part[thread] = false; });
      EachRow([&](std::int32_t thread, const PolicyRow& row) {
        takes_part[thread] = pass == 0 ? row.LacksFinalValue() : BeginStep(row);
      });
      if (block_.Any(is_needed)) {
        Forward(static_cast<const Obs*>(pass == 0 ? launch_.seen.final_obs : launch_.obs),
                is_needed);
      }
      EachRow([&](std::int32_t thread, const PolicyRow& row) {
        if (pass == 0) {
          row.See(takes_part[thread]);
        } else if (launch_.chosen.log_prob) {
          row.Choose();
        } else if (launch_.last_value) {
          row.End();
        }
      });
    }
  }

  // Prepares a row for the second pass; tells whether it needs the network.
  ROLLOUTS_HD bool BeginStep(const PolicyRow& row) const {
    if (!launch_.chosen.log_prob) return launch_.last_value && launch_.policy.value.size > 0;
    row.BeginStep();
    return true;
  }

  template <typename IsNeeded>
  ROLLOUTS_HD void Forward(const Obs* obs, IsNeeded&& is_needed) const {
    const std::int32_t size = launch_.policy.obs_size;
    const auto obs_of = [&](std::int32_t thread) {
      const std::int64_t first = FirstRow(thread);
      return ObsOfWarp<Obs>{obs + first * size, launch_.num_rows - first, size};
    };
    ForwardDense(block_, launch_.policy.dense, memory_, obs_of, is_needed);
  }

  // Calls `run(thread, row)` for each row of the block; the first 16 threads of a warp do so.
  template <typename ForRow>
  ROLLOUTS_HD void EachRow(ForRow&& run) const {
    block_.EachThread([&](std::int32_t thread) {
      if (!HasRow(thread)) return;
      const std::int32_t column = thread % kWarpThreads;
      run(thread, PolicyRow(launch_, FirstRow(thread) + column, memory_.Outputs(thread) + column,
                            memory_.Room(thread) + column));
    });
  }

  // The first row of the thread's warp.
  ROLLOUTS_HD std::int64_t FirstRow(std::int32_t thread) const {
    return first_ + thread / kWarpThreads * kDenseRows;
  }
  ROLLOUTS_HD bool HasRow(std::int32_t thread) const {
    const std::int32_t column = thread % kWarpThreads;
    return column < kDenseRows && FirstRow(thread) + column < launch_.num_rows;
  }

  const Block& block_;
  const PolicyLaunch& launch_;
  const DenseMemory memory_;
  const std::int64_t first_;
};

}  // namespace rollouts::policy

// The entry point that loaders look up by name. `OBS` is the type of an observation's numbers.
#if defined(__CUDACC_RTC__)
#define ROLLOUTS_DENSE_KERNEL(OBS)                                                  \
  extern "C" __global__ void __launch_bounds__(384, 1)                               \
      rollouts_policy(const __grid_constant__ rollouts::policy::PolicyLaunch launch) { \
    rollouts::policy::DenseKernel<OBS>::Run(rollouts::Block(), gridDim.x, launch);  \
  }
#else
#define ROLLOUTS_DENSE_KERNEL(OBS)                                                           \
  extern "C" void rollouts_policy(const rollouts::policy::PolicyLaunch* launch,              \
                                  std::int64_t num_blocks, std::int32_t num_threads,         \
                                  std::int32_t backwards) {                                  \
    const std::int64_t bytes =                                                               \
        rollouts::policy::DenseMemory::Bytes(num_threads, launch->policy.dense);             \
    /* NaN where nothing was written */                                                      \
    std::vector<std::uint8_t> memory(static_cast<std::size_t>(bytes) + 16, 0xFF);            \
    void* aligned = memory.data() + (-reinterpret_cast<std::uintptr_t>(memory.data()) & 15); \
    for (std::int64_t i = 0; i < num_blocks; ++i) {                                          \
      const std::int64_t index = backwards ? num_blocks - 1 - i : i;                         \
      const rollouts::Block block(index, num_threads, backwards, aligned);                   \
      rollouts::policy::DenseKernel<OBS>::Run(block, num_blocks, *launch);                   \
    }                                                                                        \
  }                                                                                          \
  extern "C" __attribute__((used)) inline std::int64_t rollouts_launch_bytes() {             \
    return sizeof(rollouts::policy::PolicyLaunch);                                           \
  }
#endif
