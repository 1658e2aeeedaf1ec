// SPDX-License-Identifier: Apache-2.0
// Facts that an environment declares: spaces, limits, extra info columns.
// Plain data, so that a `constexpr` EnvSpec can live in a host+device header.
#pragma once

#include "rollouts/core/platform.h"

namespace rollouts {

enum class DType : std::int32_t { kUint8, kInt32, kInt64, kFloat32, kFloat64, kInt8, kInt16 };

ROLLOUTS_HD constexpr std::int32_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kUint8: return 1;
    case DType::kInt32: return 4;
    case DType::kFloat32: return 4;
    case DType::kInt64: return 8;
    case DType::kFloat64: return 8;
    case DType::kInt8: return 1;
    case DType::kInt16: return 2;
  }
  return 0;
}

// Shape and bounds of one row. A Discrete space is `n > 0`; else it is a Box, or a
// MultiDiscrete whose element i takes the values 0 to high[i]. Discrete observations have dtype
// kInt64, as in Gymnasium.
struct SpaceSpec {
  static constexpr std::int32_t kMaxDims = 4;
  static constexpr std::int32_t kMaxBounds = 64;  // rows longer than this have one common bound

  DType dtype = DType::kFloat32;
  std::int32_t n = 0;     // number of values of a Discrete space
  std::int32_t ndim = 0;  // a Box's dimensions
  std::int32_t shape[kMaxDims] = {};
  bool multi_discrete = false;
  bool elementwise = false;  // element i has low[i], high[i]; else all have low[0], high[0]
  double low[kMaxBounds] = {};
  double high[kMaxBounds] = {};

  ROLLOUTS_HD constexpr std::int64_t size() const {
    std::int64_t total = 1;
    for (std::int32_t i = 0; i < ndim; ++i) total *= shape[i];
    return total;
  }
  ROLLOUTS_HD constexpr std::int64_t bytes() const { return size() * SizeOf(dtype); }
};

// One extra per-step value reported in Gymnasium's `info`, stored as float64, int32 or int8:
// a number, or an array of `length` of them.
struct InfoSpec {
  static constexpr std::int32_t kNumber = -1;

  const char* name = nullptr;
  DType dtype = DType::kFloat64;
  std::int32_t length = kNumber;

  ROLLOUTS_HD constexpr std::int32_t size() const { return length == kNumber ? 1 : length; }
};

// A named part of a flat observation that stands for a dict. An observation whose parts have
// several dtypes is an array of bytes, in which each part begins at a multiple of its elements'
// size.
struct ObservationPart {
  const char* name = nullptr;
  std::int32_t ndim = 0;
  std::int32_t shape[3] = {};
  DType dtype = DType::kUint8;  // the observation's own, unless that is bytes
};

// Agents of a multi-agent environment (core/multi_agent.h) that have the same spaces.
struct GroupSpec {
  const char* name = nullptr;
  std::int32_t num_agents = 0;
  SpaceSpec observation;  // for one agent, as is the next
  SpaceSpec action;
};

// Time limits and reward thresholds belong to ids, not to environments: envs.cmake has them.
struct EnvSpec {
  static constexpr std::int32_t kMaxGroups = 8;
  static constexpr std::int32_t kMaxInfos = 12;
  static constexpr std::int32_t kMaxInfoValues = 256;  // in all infos together
  static constexpr std::int32_t kMaxParts = 12;

  // The cost of a step that simulates `count` steps: a second at most, which fits 32 bits.
  static constexpr std::int32_t CostNs(std::int32_t one_ns, std::int32_t count) {
    const std::int64_t all = std::int64_t{one_ns} * count;
    return static_cast<std::int32_t>(all < 1'000'000'000 ? all : 1'000'000'000);
  }

  SpaceSpec observation;
  SpaceSpec action;
  std::int32_t step_cost_ns = 0;  // rough cost of one step on one core; sizes the pool's chunks
  std::int32_t together = 1;  // how many envs a thread best steps at once
  std::int32_t num_infos = 0;
  InfoSpec infos[kMaxInfos] = {};
  // Tells if a reset writes the infos too, as it always does in light environments. Same-step
  // autoreset then keeps the infos of the new episode separate from those of the last step.
  bool reset_infos = false;
  std::int32_t num_parts = 0;  // 0: the observation has none
  ObservationPart parts[kMaxParts] = {};
  // 0: the environment is its only agent. Else `observation` has no elements, and `action` has as
  // many bytes as the actions of all groups, one group after the other.
  std::int32_t num_groups = 0;
  GroupSpec groups[kMaxGroups] = {};
};

}  // namespace rollouts
