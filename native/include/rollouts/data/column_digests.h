// SPDX-License-Identifier: Apache-2.0
// A digest of what each environment did in a rollout, its largest reward, and whether its
// observations are finite, in one pass over a rollout's columns. A digest does not depend on other
// columns, so any thread can compute it. The thread that has just written a column does so most
// cheaply.
#pragma once

#include <cstdint>
#include <span>

#include "rollouts/core/spec.h"

namespace rollouts {

// The float type of an observation's numbers, which can be infinite or nan; kNone: integers.
enum class FloatKind : std::uint8_t { kNone, kFloat16, kFloat32, kFloat64 };

// The bytes of an observation that are digested at each step. In a stack of images they are the
// newest image, because each image is the newest at one step; the first and last observation are
// digested whole.
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

// Arrays (B,); only the elements of the digested columns are written.
struct ColumnDigests {
  std::uint64_t* digest = nullptr;        // null: none of the three arrays is wanted
  float* largest_reward = nullptr;        // by magnitude; infinite or nan if one is
  std::uint8_t* is_obs_finite = nullptr;  // whether all observations are, the last one too
};

FloatKind FloatKindOf(DType dtype);

// Returns the part of observations of this shape (without steps and rows) to digest at each step.
CellPart NewestPart(std::span<const std::int64_t> shape, std::int64_t item_bytes);

// Digests columns [first, first + count). A change within one 64-bit word of a column always
// changes its digest; a digest finds accidental differences, not forged ones.
void DigestColumns(const RolloutColumns& of, std::int32_t first, std::int32_t count,
                   const ColumnDigests& to);

}  // namespace rollouts
