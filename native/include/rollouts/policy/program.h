// SPDX-License-Identifier: Apache-2.0
// A network as a short program: operations on registers, each of which holds some features of every
// column (environment). Made in Python from a module (rollouts/policies/trace.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rollouts/policy/instruction.h"

namespace rollouts::policy {

// Throws SpecError for a name that no operation has.
OpKind OpKindOf(const std::string& name);

// An operation; rollouts/policies/program.py explains each kind.
struct Op {
  OpKind kind = OpKind::kCopy;
  std::vector<std::int32_t> inputs;  // registers
  std::vector<std::int32_t> params;
  std::vector<float> numbers;
  std::int32_t size = 0;  // features of the register that it writes
};

struct Param {
  std::string name;
  std::int64_t size = 0;
};

// Operation i writes register i + 1; register 0 is the observation, followed by the states.
struct Program {
  std::int32_t obs_size = 0;
  std::vector<Op> ops;
  std::vector<Param> params;
  std::vector<std::int32_t> outputs;
  // Features of each state of a network with memory; the last outputs are the new states.
  std::vector<std::int32_t> states = {};
};

}  // namespace rollouts::policy
