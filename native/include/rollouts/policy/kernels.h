// SPDX-License-Identifier: Apache-2.0
// The loops over columns, compiled for several instruction sets; each gives the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rollouts/policy/backward.h"
#include "rollouts/policy/heads.h"
#include "rollouts/policy/losses.h"
#include "rollouts/policy/network.h"
#include "rollouts/policy/optimizers.h"

namespace rollouts::policy {

struct Kernels {
  const char* name;
  // Runs a program on one group of columns, of which the first `columns` are wanted. The
  // observation lies in the first rows of `rows`, which has room for all registers and is aligned
  // to 64 bytes.
  void (*forward)(const Instruction* instructions, std::int32_t count, const float* params,
                  float* rows, std::int32_t columns);
  // Runs a learner's program on `groups` groups of columns (groups, num_rows, kColumns), and leaves
  // all registers there. Matrices of linears are read from `params`, the module's own memory; all
  // other parameters from `packed`.
  void (*forward_groups)(const Instruction* instructions, const BackwardStep* steps,
                         std::int32_t count, const float* packed, const float* const* params,
                         std::int32_t num_rows, std::int32_t groups, float* values);
  // Writes the gradients of a chunk's parameters to `sums` or adds them, and leaves those of
  // registers in the chunk. `packed` and `params` as for forward_groups.
  void (*backward)(const Instruction* instructions, const BackwardStep* steps, std::int32_t count,
                   const float* packed, const float* const* params, const Chunk& chunk,
                   float* sums);
  // Adds the gradients of a group's outputs to `to`, and the terms of the loss to `sums`
  // (kNumLossSums, kColumns). `room` is as large as the head's first input.
  void (*ppo)(const Head& head, const HeadInputs& inputs, const float* value,
              const ActedColumns& acted, const PpoRule& rule, float* room,
              const HeadGradients& to, float* sums);
  // The log-density and the entropy of a group's actions. `room` as for `ppo`.
  void (*density)(const Head& head, const HeadInputs& inputs, const ActedColumns& acted, float* room,
                  float* log_prob, float* entropy);
  // Makes one step of `size` weights; their gradients are multiplied by `scale`. `means` is null
  // except with Adam. Tells if no weight is nan or infinite afterwards.
  bool (*step)(const StepRule& rule, float scale, std::int64_t size, float* weights,
               const float* gradients, float* means, float* squares);
  // Moves `to` towards `from`: it becomes share * from + (1 - share) * to.
  void (*move)(std::int64_t size, const float* from, float share, float* to);
  // Tells if no value is nan or infinite.
  bool (*is_finite)(std::int64_t size, const float* values);
  // The sum of squares in double, over 16 lanes and then over these, in a fixed order.
  double (*sum_squares)(std::int64_t size, const float* values);
  // Sums of rows (rows, kColumns) over their lanes, each in the order of a fixed tree.
  void (*add_lanes)(const float* from, std::int64_t rows, float* to);
  // Writes `count` rows of `size` numbers as the first columns of an array (size, block).
  void (*transpose)(const float* const* rows, std::int32_t count, std::int32_t size,
                    std::int32_t block, float* to);
  void (*act)(const Head& head, const HeadInputs& inputs, const NoiseKeys& keys,
              HeadOutputs& outputs);
};

// The kernels of the widest instruction set that this machine has. The environment variable
// ROLLOUTS_POLICY_KERNELS may name another one of KernelNames().
const Kernels& BestKernels();
const Kernels& KernelsOf(const std::string& name);  // SpecError for an unknown name
std::vector<std::string> KernelNames();             // those that this machine can run

}  // namespace rollouts::policy
