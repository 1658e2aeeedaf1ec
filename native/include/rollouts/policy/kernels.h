// SPDX-License-Identifier: Apache-2.0
// The loops over columns, compiled for several instruction sets; the same bits from each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rollouts/policy/heads.h"
#include "rollouts/policy/network.h"

namespace rollouts::policy {

struct Kernels {
  const char* name;
  // Runs a program on one group of columns, of which the first `columns` are wanted. The observation
  // lies in the first rows of `rows`, which has room for all registers and lies on a 64-byte border.
  void (*forward)(const Instruction* instructions, std::int32_t count, const float* params,
                  float* rows, std::int32_t columns);
  void (*act)(const Head& head, const HeadInputs& inputs, const NoiseKeys& keys,
              HeadOutputs& outputs);
};

// The widest that this machine has. The environment variable ROLLOUTS_POLICY_KERNELS names another
// one of KernelNames().
const Kernels& BestKernels();
const Kernels& KernelsOf(const std::string& name);  // SpecError for others than
std::vector<std::string> KernelNames();             // those that this machine can run

}  // namespace rollouts::policy
