// SPDX-License-Identifier: Apache-2.0
// A network as a short program: operations on registers, which hold some features of every column
// (environment). Made in Python from a module (rollouts/policies/trace.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rollouts/policy/instruction.h"

namespace rollouts::policy {

// Throws SpecError for a name that is no operation.
OpKind OpKindOf(const std::string& name);

// rollouts/policies/program.py says what each kind means.
struct Op {
  OpKind kind = OpKind::kCopy;
  std::vector<std::int32_t> inputs;  // registers
  std::vector<std::int32_t> params;
  std::vector<float> numbers;
  std::int32_t size = 0;  // features of the register it writes
};

struct Param {
  std::string name;
  std::int64_t size = 0;
};

// Op i writes register i + 1; register 0 is the observation and, behind it, the states.
struct Program {
  std::int32_t obs_size = 0;
  std::vector<Op> ops;
  std::vector<Param> params;
  std::vector<std::int32_t> outputs;
  // Features of each state, of a network with memory; the last outputs are what they become.
  std::vector<std::int32_t> states = {};
};

}  // namespace rollouts::policy
