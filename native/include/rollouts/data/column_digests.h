// SPDX-License-Identifier: Apache-2.0
// A digest of what each environment did in a rollout, its largest reward, and whether its
// observations are finite, in one pass over a rollout's columns. A thread can take any columns,
// most cheaply those that it has just written; a digest does not depend on the other columns.
#pragma once

#include <cstdint>
#include <span>

#include "rollouts/core/spec.h"

namespace rollouts {

// The float type of an observation's numbers, which can be infinite or nan; kNone: integers.
enum class FloatKind : std::uint8_t { kNone, kFloat16, kFloat32, kFloat64 };

// The bytes of an observation that are digested at each step. Of a stack of pictures these are the
// newest picture's, as each is the newest once; the first and last observation are digested whole.
struct CellPart {
  std::int64_t first = 0;
  std::int64_t bytes = 0;
};

// Borrowed arrays of T steps of B rows, which are environments or agents.
struct RolloutColumns {
  std::int32_t steps = 0;              // T
  std::int32_t rows = 0;               // B
  const std::uint8_t* obs = nullptr;   // (T, B, cell_bytes)
  const std::uint8_t* last_obs = nullptr;  // (B, cell_bytes)
  std::int64_t cell_bytes = 0;
  CellPart part = {};
  FloatKind kind = FloatKind::kNone;
  const float* reward = nullptr;  // (T, B), as are the next
  const std::uint8_t* terminated = nullptr;
  const std::uint8_t* truncated = nullptr;
  const std::uint8_t* active = nullptr;  // null: all rows are active
};

// Arrays (B,); only the elements of the columns that are taken are written.
struct ColumnDigests {
  std::uint64_t* digest = nullptr;        // null: none of the three arrays is wanted
  float* largest_reward = nullptr;        // by magnitude; infinite or nan if a reward is
  std::uint8_t* is_obs_finite = nullptr;  // whether all observations are, the last one too
};

FloatKind FloatKindOf(DType dtype);

// Returns the part of observations of this shape (without steps and rows) to digest at each step.
CellPart NewestPart(std::span<const std::int64_t> shape, std::int64_t item_bytes);

// Digests columns [first, first + count). Any change within 64 bits of a column changes its digest;
// a digest finds accidental differences, not forged ones.
void DigestColumns(const RolloutColumns& of, std::int32_t first, std::int32_t count,
                   const ColumnDigests& to);

}  // namespace rollouts
