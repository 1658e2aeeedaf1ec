// SPDX-License-Identifier: Apache-2.0
// A digest of what each environment did in a rollout, and whether its numbers are strange: one pass
// over a rollout's columns. A thread can take any of them, most cheaply those that it has just
// written; which columns are taken together changes no digest.
#pragma once

#include <cstdint>
#include <span>

#include "rollouts/core/spec.h"

namespace rollouts {

// The numbers that an observation is made of: those that are floats can be infinite or nan.
enum class FloatKind : std::uint8_t { kNone, kFloat16, kFloat32, kFloat64 };

// The bytes of an observation that count at each step. Pictures in a stack count by the newest, and
// whole before the first step and after the last one: each picture is the newest once.
struct CellPart {
  std::int64_t first = 0;
  std::int64_t bytes = 0;
};

// Borrowed arrays of T steps of B rows, environments or agents, of which some columns are taken.
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
  const std::uint8_t* active = nullptr;  // null: all are
};

// Arrays (B,) of which the elements of the columns that are taken are written.
struct ColumnDigests {
  std::uint64_t* digest = nullptr;        // null: nobody wants any of them
  float* largest_reward = nullptr;        // by magnitude; infinite or nan where one is
  std::uint8_t* is_obs_finite = nullptr;  // observations and the last one
};

FloatKind FloatKindOf(DType dtype);

// The part of observations of this shape (without steps and rows) that counts at each step.
CellPart NewestPart(std::span<const std::int64_t> shape, std::int64_t item_bytes);

// Looks at columns [first, first + count). Any change within one column and 64 bits shows in its
// digest; a digest finds what differs, not what was forged.
void DigestColumns(const RolloutColumns& of, std::int32_t first, std::int32_t count,
                   const ColumnDigests& to);

}  // namespace rollouts
