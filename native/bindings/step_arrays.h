// SPDX-License-Identifier: Apache-2.0
// The arrays of a batch, in the order in which NumPy and XLA get them; info columns follow them.
// rollouts/batch.py has the same order for Python: StepBatch.
#pragma once

#include <array>
#include <cstddef>

#include "rollouts/core/batch_view.h"

namespace rollouts {

struct StepArray {
  const char* name;
  DType dtype;          // that of the space, for observations
  bool is_obs = false;  // a row is an observation, else a number
  bool is_flag = false;
};

inline constexpr StepArray kStepArrays[] = {
    {"obs", DType::kUint8, /*is_obs=*/true},
    {"reward", DType::kFloat64},
    {"terminated", DType::kUint8, false, /*is_flag=*/true},
    {"truncated", DType::kUint8, false, /*is_flag=*/true},
    {"env_id", DType::kInt32},
    {"episode_return", DType::kFloat64},
    {"episode_length", DType::kInt32},
    {"final_obs", DType::kUint8, /*is_obs=*/true},
};
inline constexpr std::size_t kNumStepArrays = std::size(kStepArrays);

// Pointers to the arrays; null where a batch does not have one.
using StepPointers = std::array<void*, kNumStepArrays>;

inline StepPointers PointersOf(const BatchView& view) {
  return {view.obs,    view.reward,         view.terminated,     view.truncated,
          view.env_id, view.episode_return, view.episode_length, view.final_obs};
}

inline BatchView ViewOf(const StepPointers& arrays) {
  BatchView view;
  view.obs = static_cast<std::uint8_t*>(arrays[0]);
  view.reward = static_cast<double*>(arrays[1]);
  view.terminated = static_cast<std::uint8_t*>(arrays[2]);
  view.truncated = static_cast<std::uint8_t*>(arrays[3]);
  view.env_id = static_cast<std::int32_t*>(arrays[4]);
  view.episode_return = static_cast<double*>(arrays[5]);
  view.episode_length = static_cast<std::int32_t*>(arrays[6]);
  view.final_obs = static_cast<std::uint8_t*>(arrays[7]);
  return view;
}

}  // namespace rollouts
