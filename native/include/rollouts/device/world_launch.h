// SPDX-License-Identifier: Apache-2.0
// Arguments of a launch over worlds of agents. The same bytes on host and device;
// rollouts/envs/kernel/launch_args.py writes them.
#pragma once

#include "rollouts/core/multi_agent.h"
#include "rollouts/device/launch.h"

namespace rollouts {

// A group of agents, and the place of its actions among all actions of a world.
struct DeviceGroup {
  std::int32_t num_agents = 0;
  std::int32_t first_agent = 0;    // index among the world's agents
  std::int32_t obs_size = 0;       // elements, of one agent
  std::int32_t action_size = 0;
  std::int64_t action_offset = 0;  // in bytes, of its first agent
  SpaceSpec action;

  ROLLOUTS_HD bool has_real_actions() const { return action.n == 0 && !action.multi_discrete; }
};

// Fills `groups`, one for each group of the environment.
ROLLOUTS_HD constexpr void DescribeGroups(const EnvSpec& spec, DeviceGroup* groups) {
  std::int32_t first_agent = 0;
  std::int64_t offset = 0;
  for (std::int32_t g = 0; g < spec.num_groups; ++g) {
    const GroupSpec& group = spec.groups[g];
    groups[g].num_agents = group.num_agents;
    groups[g].first_agent = first_agent;
    groups[g].obs_size = static_cast<std::int32_t>(group.observation.size());
    groups[g].action_size = static_cast<std::int32_t>(group.action.size());
    groups[g].action_offset = offset;
    groups[g].action = group.action;
    first_agent += group.num_agents;
    offset += ActionBytes(group.action) * group.num_agents;
  }
}

// Arrays for a group's rows, each (N, A, ...).
struct GroupRows {
  std::uint8_t* obs;
  std::uint8_t* final_obs;  // valid where an episode ended; null unless same-step
  float* reward;
  std::uint8_t* terminated;
  std::uint8_t* truncated;
  std::uint8_t* active;
  double* episode_return;
};

struct WorldRows {
  std::uint8_t* ended;  // (N,), as the next one
  std::int32_t* episode_length;
  GroupRows groups[EnvSpec::kMaxGroups];
};

// Layout of a team's shared memory: offsets in bytes from its beginning, where the team's state is.
struct TeamMemory {
  std::int32_t bytes;
  std::int32_t actions;     // one world's actions; 0: they are in `action_memory`
  std::int32_t world;       // 0: worlds are stepped in place
  std::int32_t obs;         // observations of `obs_rows` agents
  std::int32_t obs_rows;    // 0: observations are written straight to their rows
  std::int32_t sums;        // kSumParts sums; 0: one thread makes the sum
};

// Bytes of a team's state, without the addresses of its agents' arrays.
inline constexpr std::int32_t kTeamStateBytes = 192;

struct WorldLaunch {
  std::int64_t num_envs;
  const void* configs;
  std::int64_t config_stride;  // counted in Configs; 0 where all environments share one
  const float* tables;
  std::int64_t table_stride;  // counted in floats; 0 where all environments share them
  std::uint8_t* worlds;       // (N, world_bytes); (world_bytes / 16, N, 16) for an AloneShape
  std::int64_t world_bytes;
  const DeviceGroup* groups;
  std::int32_t num_groups;
  std::int32_t num_agents;
  ClockColumns clock;
  StepRules rules;
  const std::uint8_t* commands;  // a Command for each environment; null: `command` for all
  std::int32_t command;
  std::int32_t num_steps;
  const void* actions[EnvSpec::kMaxGroups];
  void* taken[EnvSpec::kMaxGroups];             // null, or gets the (K, N, A, size) actions
  std::int32_t action_bytes[EnvSpec::kMaxGroups];  // bytes of an element: 4 or 8
  ActionSource action_source;
  std::int32_t record_steps;  // 0: only the rows of the last step are kept
  std::uint64_t action_seed;
  std::int64_t action_step;     // number of the first step, for random actions
  std::uint8_t* action_memory;  // (N, bytes of a world's actions)
  WorldRows rows;
  EpisodeTotals totals;
  std::uint64_t* fault;
  std::int32_t team_size;
  TeamMemory memory;  // an AloneShape uses only `bytes`, the size of a thread's slot
};

// Facts of a group that loops over its agents need.
struct GroupFacts {
  std::int32_t index, num_agents, first_agent, obs_size, action_size;
  std::int64_t action_offset;
};

// Worlds whose sizes are known only at the launch; a team of threads steps each.
struct AnyShape {
  static constexpr bool kIsAlone = false;

  ROLLOUTS_HD static std::int32_t NumAgents(const WorldLaunch& launch) { return launch.num_agents; }
  ROLLOUTS_HD static std::int64_t WorldBytes(const WorldLaunch& launch) {
    return launch.world_bytes;
  }
  template <typename Run>
  ROLLOUTS_HD static void EachGroup(const WorldLaunch& launch, Run&& run) {
    for (std::int32_t g = 0; g < launch.num_groups; ++g) {
      const DeviceGroup& group = launch.groups[g];
      run(GroupFacts{g, group.num_agents, group.first_agent, group.obs_size, group.action_size,
                     group.action_offset});
    }
  }
};

struct GroupShape {
  std::int32_t num_agents, obs_size, action_size;
};

// Small worlds of a few agents, whose sizes are known to the compiler: one thread steps each alone,
// on a copy that can be in registers.
template <std::int64_t kBytes, GroupShape... kGroups>
struct AloneShape {
  static constexpr bool kIsAlone = true;
  static constexpr std::int64_t kWorldBytes = kBytes;
  static constexpr std::int64_t kActionBytes =
      ((std::int64_t{4} * kGroups.num_agents * kGroups.action_size) + ...);

  ROLLOUTS_HD static constexpr std::int32_t NumAgents(const WorldLaunch&) {
    return (kGroups.num_agents + ...);
  }
  ROLLOUTS_HD static constexpr std::int64_t WorldBytes(const WorldLaunch&) { return kBytes; }
  template <typename Run>
  ROLLOUTS_HD static void EachGroup(const WorldLaunch&, Run&& run) {
    GroupFacts facts{};
    const auto next = [&](std::int32_t num_agents, std::int32_t obs_size, std::int32_t action_size) {
      facts.num_agents = num_agents;
      facts.obs_size = obs_size;
      facts.action_size = action_size;
      run(facts);
      ++facts.index;
      facts.first_agent += num_agents;
      facts.action_offset += std::int64_t{4} * num_agents * action_size;
    };
    (next(kGroups.num_agents, kGroups.obs_size, kGroups.action_size), ...);
  }
};

}  // namespace rollouts
