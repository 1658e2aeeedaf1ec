// SPDX-License-Identifier: Apache-2.0
// The contract of a multi-agent environment: some groups of agents in one world, stepped in phases.
//
// It is a struct with
//   using Config = ...;   plain data, defaults in place
//   using World = ...;    plain data (trivially copyable): what the agents share
//   using Obs = ...;      element type of all observations
//   struct Agents { float* x; ... };   arrays over all agents, group after group
//   template <class V> static void VisitFields(const Config&, Agents&, V& visit)   each array:
//       visit("x", agents.x), or visit("near", agents.near, k) where an agent has k elements
//   template <class V> static void VisitWorld(World&, V& visit)   optional: visit("goal", world.goal)
//       for each field of the World that drawings show
//   static EnvSpec MakeSpec(const Config&)   step_cost_ns, and its groups by AddGroup
//   template <class V> static void VisitConfig(Config&, V& visit)   and CheckConfig, as core/env.h
//   static void Reset(const WorldRef<Env>& world, Rng& rng)   arrays begin as zeros
//   static constexpr int kResetPhases   optional, with
//   template <int kPhase> static void ResetAgent(const WorldRef<Env>& world, int agent)   after
//       Reset, under the rules of StepAgent: the part of a reset that agents can compute at once
//   static constexpr int kPhases
//   template <int kPhase> static void StepAgent(const WorldRef<Env>& world, int agent)
//       one agent's part of a phase. Agents of a phase run in any order or at once, so it writes
//       only its own agent's numbers, and reads only such numbers of other agents as no agent
//       writes in this phase
//   template <int kPhase, class Crew> static void StepTogether(const Crew& crew)   optional, with
//       ResetTogether: work of the agents together, before each phase. It is run with the same
//       values by all threads of a team; crew.ForEach(count, run) is a loop, followed by a barrier,
//       whose calls run(world, i) come in any order or at once; crew.config() returns the options
//   static bool EndStep(const WorldRef<Env>& world, Rng& rng)   once, after all phases; true where
//       the episode is over. Agents that leave earlier are marked in status.terminated
//   static void Observe(const WorldRef<Env>& world, int agent, Obs* obs)   writes one agent's row,
//       after a reset as after a step; changes nothing
//   static std::int32_t NumTables(const Config&)   optional, with FillTables(const Config&, float*):
//       numbers that follow from the options, which every world finds in `tables`; on the host alone
//   static const char* CheckWorld(const WorldRef<Env>& world)   optional, as CheckState in core/env.h;
//       the pool itself checks the status of the agents
// all ROLLOUTS_HD but VisitConfig, CheckConfig, MakeSpec and FillTables. Phases run as loops on the
// CPU and as threads of a block, with a barrier after each, and both compute the same.
//
// It knows nothing of batches, seeds, autoreset and statistics: core/step.h has them. It knows no
// other time limit than `max_episode_steps`.
#pragma once

#include "rollouts/core/step.h"

namespace rollouts {

// Arrays that every multi-agent environment has of its agents, in the order of `Agents`.
struct AgentStatus {
  double* reward = nullptr;          // reward of this step; 0 before it
  double* episode_return = nullptr;  // sum of the rewards
  std::uint8_t* active = nullptr;    // was in the episode as the step began; a Reset may clear it
  std::uint8_t* terminated = nullptr;  // left the episode in this step
};

// Actions of all agents, group after group: an int32 each for a Discrete space, else their elements,
// int32 (MultiDiscrete) or float (Box).
struct AgentActions {
  const void* of_group[EnvSpec::kMaxGroups] = {};

  // The actions of a group's first agent; those of its other agents follow.
  template <typename T>
  ROLLOUTS_HD const T* Of(std::int32_t group) const {
    return static_cast<const T*>(of_group[group]);
  }
};

// One world as its environment's functions see it; borrows everything.
template <typename Env>
struct WorldRef {
  const typename Env::Config& config;
  typename Env::World& world;
  typename Env::Agents agents;
  AgentStatus status;
  AgentActions actions;           // set in a step alone
  const float* tables = nullptr;  // what FillTables wrote
  std::int32_t num_agents = 0;
  std::int32_t elapsed_steps = 0;      // including this step
  std::int32_t max_episode_steps = 0;  // 0: no limit
};

template <typename Env>
concept HasTables = requires(const typename Env::Config& config) { Env::NumTables(config); };

template <typename Env>
concept ResetsAgents = requires { Env::kResetPhases; };

// The agents of a world that one thread steps, for work on all of them together.
template <typename Env>
struct WorldCrew {
  const WorldRef<Env>& world;

  ROLLOUTS_HD const typename Env::Config& config() const { return world.config; }
  template <typename Run>
  ROLLOUTS_HD void ForEach(std::int32_t count, Run&& run) const {
    for (std::int32_t i = 0; i < count; ++i) run(world, i);
  }
};

template <typename Env>
concept WorksTogether =
    requires(const WorldCrew<Env>& crew) { Env::template StepTogether<0>(crew); };

struct AnyVisitor {};
template <typename Env>
concept TellsWorld = requires(typename Env::World& world, AnyVisitor& visit) {
  Env::VisitWorld(world, visit);
};

// Members that a multi-agent environment must have.
template <typename Env>
concept MultiAgentEnvironment =
    requires(const typename Env::Config& config, const WorldRef<Env>& world, typename Env::Obs* obs,
             Rng& rng) {
      requires kSameType<decltype(Env::MakeSpec(config)), EnvSpec>;
      Env::Reset(world, rng);
      Env::template StepAgent<Env::kPhases - 1>(world, 0);
      requires kSameType<decltype(Env::EndStep(world, rng)), bool>;
      Env::Observe(world, 0, obs);
    };

// Bytes of one agent's action as the pool keeps it: a Discrete action is an int32.
ROLLOUTS_HD constexpr std::int64_t ActionBytes(const SpaceSpec& action) {
  return action.n > 0 ? 4 : action.bytes();
}

// Adds a group to the spec of an environment, whose own spaces follow from those of its groups.
constexpr void AddGroup(EnvSpec& spec, const GroupSpec& group) {
  const std::int64_t before = spec.num_groups > 0 ? spec.action.shape[0] : 0;
  const std::int64_t bytes = before + ActionBytes(group.action) * group.num_agents;
  // groups beyond kMaxGroups are only counted; the reader of the spec refuses them
  if (spec.num_groups < EnvSpec::kMaxGroups) spec.groups[spec.num_groups] = group;
  ++spec.num_groups;
  spec.observation = {.dtype = DType::kUint8, .ndim = 1, .shape = {0}};
  spec.action = {.dtype = DType::kUint8, .ndim = 1, .shape = {static_cast<std::int32_t>(bytes)}};
}

// Agents of all groups.
ROLLOUTS_HD constexpr std::int32_t NumAgents(const EnvSpec& spec) {
  std::int32_t total = 0;
  for (std::int32_t g = 0; g < spec.num_groups; ++g) total += spec.groups[g].num_agents;
  return total;
}

// Loops over agents on the CPU; device/team_world.h has those of a team of threads.
template <typename Env>
struct AgentLoops {
  // Runs the phases that follow a Reset.
  template <int kPhase = 0>
  static inline void ResetPhases(const WorldRef<Env>& world) {
    if constexpr (ResetsAgents<Env>) {
      if constexpr (kPhase < Env::kResetPhases) {
        if constexpr (WorksTogether<Env>) Env::template ResetTogether<kPhase>(WorldCrew<Env>{world});
        for (std::int32_t agent = 0; agent < world.num_agents; ++agent) {
          Env::template ResetAgent<kPhase>(world, agent);
        }
        ResetPhases<kPhase + 1>(world);
      }
    }
  }
  template <int kPhase>
  static inline void Phases(const WorldRef<Env>& ref) {
    if constexpr (kPhase < Env::kPhases) {
      // copied, because pointers behind a reference prevent the vectorisation
      const WorldRef<Env> world = ref;
      const std::int32_t num_agents = world.num_agents;
      if constexpr (WorksTogether<Env>) Env::template StepTogether<kPhase>(WorldCrew<Env>{world});
#pragma GCC ivdep
      for (std::int32_t agent = 0; agent < num_agents; ++agent) {
        Env::template StepAgent<kPhase>(world, agent);
      }
      Phases<kPhase + 1>(ref);
    }
  }
  static inline void Observe(const WorldRef<Env>& world, std::int32_t first, std::int32_t count,
                             typename Env::Obs* obs, std::int64_t size) {
    for (std::int32_t i = 0; i < count; ++i) Env::Observe(world, first + i, obs + i * size);
  }
};

// Begins a step for an agent: an agent that left in the last step is gone.
ROLLOUTS_HD inline void BeginAgent(const AgentStatus& status, std::int32_t agent) {
  status.active[agent] = status.active[agent] & (status.terminated[agent] ^ 1);
  status.terminated[agent] = 0;
  status.reward[agent] = 0;
}
ROLLOUTS_HD inline void BeginAgents(const AgentStatus& status, std::int32_t num_agents) {
  for (std::int32_t i = 0; i < num_agents; ++i) BeginAgent(status, i);
}

// Ends a step for an agent: adds its reward to its return; where the world's episode ended, the
// agent's does too.
ROLLOUTS_HD inline void EndAgent(const AgentStatus& status, std::int32_t agent, bool terminated) {
  status.episode_return[agent] += status.reward[agent];
  if (terminated) status.terminated[agent] = status.active[agent];
}

// Sums over some of a world's agents.
struct AgentSums {
  double reward = 0;
  std::int32_t staying = 0;

  ROLLOUTS_HD void Add(const AgentSums& other) {
    reward += other.reward;
    staying += other.staying;
  }
};

// A sum is made of this many partial sums, whatever the number of threads that compute them, so
// that its bits are always the same.
inline constexpr std::int32_t kSumParts = 32;

ROLLOUTS_HD inline AgentSums SumPart(const AgentStatus& status, std::int32_t num_agents,
                                     std::int32_t part) {
  const std::int32_t each = (num_agents + kSumParts - 1) / kSumParts;
  const std::int32_t end = (part + 1) * each < num_agents ? (part + 1) * each : num_agents;
  AgentSums sums;
  for (std::int32_t i = part * each; i < end; ++i) {
    sums.Add({status.reward[i], status.active[i] & (status.terminated[i] ^ 1)});
  }
  return sums;
}

// The result of the step for the whole world. The episode ends when its last agent leaves.
ROLLOUTS_HD inline StepResult ResultOf(const AgentSums& sums, bool terminated) {
  return StepResult::Of(sums.reward, terminated || sums.staying == 0);
}
ROLLOUTS_HD inline StepResult SumAgents(const AgentStatus& status, std::int32_t num_agents,
                                        bool terminated) {
  AgentSums sums;
  // the other parts are empty
  const std::int32_t parts = num_agents < kSumParts ? num_agents : kSumParts;
  for (std::int32_t part = 0; part < parts; ++part) sums.Add(SumPart(status, num_agents, part));
  return ResultOf(sums, terminated);
}
ROLLOUTS_HD inline StepResult EndAgents(const AgentStatus& status, std::int32_t num_agents,
                                        bool terminated) {
  for (std::int32_t i = 0; i < num_agents; ++i) EndAgent(status, i, terminated);
  return SumAgents(status, num_agents, terminated);
}

// An agent's part of a row.
struct AgentOutcome {
  double reward;
  std::uint8_t terminated, truncated, active;
};

// An agent's outcome. Without a step (`stepped` false) there is no reward, and agents that are gone
// are not active. `truncated`: the world was truncated.
ROLLOUTS_HD inline AgentOutcome OutcomeOf(const AgentStatus& status, std::int32_t agent,
                                          bool stepped, std::uint8_t truncated) {
  const std::uint8_t active = status.active[agent], left = status.terminated[agent];
  const auto stays = static_cast<std::uint8_t>(active & (left ^ 1));
  return {stepped ? status.reward[agent] : 0, stepped ? left : std::uint8_t{0},
          static_cast<std::uint8_t>(truncated & stays), stepped ? active : stays};
}

}  // namespace rollouts
