// SPDX-License-Identifier: Apache-2.0
// A simple program's loop: N environments of one type, stepped one after the other
// by the caller, with no pool. `rollouts bench --peer loop` measures the pool against it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rollouts/core/spec.h"
#include "rollouts/support/options.h"

namespace rollouts {

// A loop in C++. Not thread-safe. Its arrays are written again by every call.
class PlainLoop {
 public:
  virtual ~PlainLoop() = default;
  virtual const EnvSpec& spec() const = 0;
  // Begins an episode in each environment.
  virtual void Reset() = 0;
  // Steps each environment; one whose episode ended begins the next episode instead, as in the
  // pool's next-step autoreset. `actions` has a row of the action space's dtype for each
  // environment.
  virtual void Step(const void* actions) = 0;

  const std::uint8_t* obs() const { return obs_.data(); }
  const double* reward() const { return reward_.data(); }
  const std::uint8_t* terminated() const { return terminated_.data(); }
  const std::uint8_t* truncated() const { return truncated_.data(); }
  std::int32_t num_envs() const { return static_cast<std::int32_t>(reward_.size()); }

 protected:
  PlainLoop(std::int32_t num_envs, std::int64_t obs_bytes)
      : obs_(num_envs * obs_bytes), reward_(num_envs), terminated_(num_envs), truncated_(num_envs) {}

  std::vector<std::uint8_t> obs_;
  std::vector<double> reward_;
  std::vector<std::uint8_t> terminated_, truncated_;
};

// Throws SpecError when there is no such light environment or option. max_episode_steps 0: no
// limit.
std::unique_ptr<PlainLoop> MakePlainLoop(const std::string& id, const OptionColumns& options,
                                         std::int32_t num_envs, std::int32_t max_episode_steps,
                                         std::uint64_t seed);

}  // namespace rollouts
