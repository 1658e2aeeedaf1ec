// SPDX-License-Identifier: Apache-2.0
// A network in the form from which kernels compute its gradients: plain data.
#pragma once

#include "rollouts/policy/instruction.h"

namespace rollouts::policy {

// Groups of columns that are computed together, so that a sum over columns stays in registers.
inline constexpr std::int32_t kChunkGroups = 4;
inline constexpr std::int32_t kChunkColumns = kChunkGroups * kColumns;
// The most inputs of a linear, after its last whole block, that do not become a block: so few
// inputs cost less as sums whose lanes are columns.
inline constexpr std::int32_t kMostTail = 4;

// The places to which the gradients of one instruction go. The first operation that gives a
// gradient for an input writes it, and the others add to it.
struct BackwardStep {
  bool wants_a = false;
  bool wants_b = false;
  bool wants_c = false;
  bool adds_a = false;
  bool adds_b = false;
  bool adds_c = false;
  bool transposes = false;      // transposes a linear's input; false where an earlier step does so
  std::int32_t tail = 0;    // a linear's last inputs, summed over lanes: too few for a vector
  std::int32_t summed = 0;  // the inputs before the tail, rounded up to a whole block
  std::int64_t transposed = 0;  // a linear's input by column: (columns, summed)
  std::int32_t matrix = -1;     // index of a linear's weights among the parameters
  // The input of a linear is a tanh that nothing else reads: a gradient goes through both at once.
  bool through_tanh = false;
  // Places of the gradients of parameters; -1: not wanted. A linear has (outputs, summed) and then
  // (outputs, tail, kColumns), a table its own shape, all others (size, kColumns); lanes are added
  // up at the end.
  std::int64_t weight_sum = -1;
  std::int64_t bias_sum = -1;
};

struct Chunk {
  const float* values;     // (groups, num_rows, kColumns), as the forward pass left them
  float* gradients;        // likewise; those of outputs are given
  float* transposed;       // memory to use
  std::int32_t num_rows;
  std::int32_t groups;
  bool adds;               // to the sums of earlier chunks; the first chunk writes them
};

}  // namespace rollouts::policy
