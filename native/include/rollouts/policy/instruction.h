// SPDX-License-Identifier: Apache-2.0
// The part of a network that kernels run: plain data, equal on host and GPU.
#pragma once

#include "rollouts/core/platform.h"
#include "rollouts/policy/operations.h"

namespace rollouts::policy {

// Columns whose features lie together; a register is (features, kColumns) floats.
inline constexpr std::int32_t kColumns = 16;
// Columns that one call computes: all of them, or in a GPU's thread only its own.
inline constexpr std::int32_t kSpan = kInKernel ? 1 : kColumns;

// kCopy copies one input of a concat, and has no name in Python.
#define ROLLOUTS_KIND(Name, ...) k##Name,
enum class OpKind : std::int32_t {
  kCopy,
  ROLLOUTS_OPERATIONS(ROLLOUTS_KIND, ROLLOUTS_KIND, ROLLOUTS_KIND, ROLLOUTS_KIND)
};
#undef ROLLOUTS_KIND

// One step of a laid-out program. Registers are given by their first row in the scratch memory,
// weights by their offset in the packed parameters.
struct Instruction {
  OpKind kind = OpKind::kCopy;
  std::int32_t out = 0;   // row
  std::int32_t a = 0;     // row of the first input
  std::int32_t b = 0;     // row of the second
  std::int32_t c = 0;     // row of the third
  std::int32_t size = 0;  // rows written
  std::int32_t a_size = 0;
  std::int32_t b_size = 0;
  std::int32_t c_size = 0;
  std::int64_t weight = 0;
  std::int64_t bias = 0;  // -1: none
  float number[2] = {};
};

}  // namespace rollouts::policy
