// SPDX-License-Identifier: Apache-2.0
// Which engine steps an environment, where several could and take each other's states.
#pragma once

#include <string>

namespace rollouts {

struct EngineChoice {
  std::string name;           // as the option `engine` names it; empty: there is no choice
  std::string why_not_lanes;  // of "mujoco"
};

}  // namespace rollouts
