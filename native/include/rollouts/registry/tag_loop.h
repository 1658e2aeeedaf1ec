// SPDX-License-Identifier: Apache-2.0
// TagContinuous as a simple program would compute it: agents one after the other, distances of all
// pairs, a partial sort. `rollouts bench --peer all-pairs` measures the pool against it.
#pragma once

#include <cstdint>
#include <vector>

#include "rollouts/envs/multi_agent/tag_continuous.h"

namespace rollouts {

// A loop over Tag. Not thread-safe. Rows are taggers, then runners; each call writes the arrays.
class TagLoop {
 public:
  TagLoop(const TagContinuous::Config& config, std::int32_t num_envs,
          std::int32_t max_episode_steps);

  // Begins an episode in each environment.
  void Reset();
  // Takes (num_envs, num_agents, 2) actions. Environments whose episode ended begin the next one.
  void Step(const std::int32_t* actions);

  std::int32_t num_envs() const { return num_envs_; }
  std::int32_t num_agents() const { return num_agents_; }
  const std::vector<float>& obs() const { return obs_; }
  const std::vector<float>& reward() const { return reward_; }

 private:
  struct Agent {
    float x = 0, y = 0, speed = 0, heading = 0, acceleration = 0;
    bool active = true;
  };
  struct World {
    std::vector<Agent> agents;
    std::int32_t steps = 0;
    bool ended = false;
  };

  std::int32_t NumSeen() const;
  void Begin(std::int32_t env);
  void Move(std::int32_t env, const std::int32_t* actions);
  void Observe(std::int32_t env);
  bool Tag(std::int32_t env);

  const TagContinuous::Config config_;
  const std::int32_t num_agents_;
  const std::int32_t num_envs_;
  const std::int32_t max_episode_steps_;
  std::vector<float> tables_;
  std::vector<World> worlds_;
  std::vector<float> obs_;
  std::vector<float> reward_;
};

}  // namespace rollouts
