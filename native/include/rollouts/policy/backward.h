// SPDX-License-Identifier: Apache-2.0
// A network as kernels read it to compute its gradients: plain data.
#pragma once

#include "rollouts/policy/instruction.h"

namespace rollouts::policy {

// Groups of columns that are computed together, so that a sum over columns stays in registers.
inline constexpr std::int32_t kChunkGroups = 4;
inline constexpr std::int32_t kChunkColumns = kChunkGroups * kColumns;
// Inputs of a linear behind the last whole block that are no block of their own: so few cost less as
// sums whose lanes are columns.
inline constexpr std::int32_t kMostTail = 4;

// Beside an instruction: where its gradients go. An input's gradient is written by the first
// operation that gives one, and the others add to it.
struct BackwardStep {
  bool wants_a = false;
  bool wants_b = false;
  bool wants_c = false;
  bool adds_a = false;
  bool adds_b = false;
  bool adds_c = false;
  bool transposes = false;      // the input of a linear, which no step before (of the pass) has done
  std::int32_t padded = 0;      // a linear's inputs, up to a whole block
  std::int32_t tail = 0;    // its last inputs, whose sums are over lanes: too few for a vector
  std::int32_t summed = 0;  // those before them, up to a whole block
  std::int64_t transposed = 0;  // where a linear's input lies by column: (columns, summed)
  std::int64_t matrix = -1;     // a linear's weights by output: (outputs, padded)
  // Gradients of parameters; -1: not wanted. Of a linear (outputs, summed) and behind it (outputs,
  // tail, kColumns), of a table as it is, of all others (size, kColumns); lanes are added up at the end.
  std::int64_t weight_sum = -1;
  std::int64_t bias_sum = -1;
};

struct Chunk {
  const float* values;     // (groups, num_rows, kColumns), as the forward pass left them
  float* gradients;        // likewise; those of outputs are there
  float* transposed;       // room
  std::int32_t num_rows;
  std::int32_t groups;
};

}  // namespace rollouts::policy
