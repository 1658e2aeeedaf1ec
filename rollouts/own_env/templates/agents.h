// MyEnv: seekers and hiders on a line; a seeker on a hider's field finds it, and the game ends when
// all are found. Replace its parts by those of your own game, one after the other; `rollouts
// check-env` tests the result.
//
// The whole contract is in rollouts/core/multi_agent.h; rollouts/envs/multi_agent and envs/mpe have
// examples. The text must also compile for a GPU: use no standard library and allocate no memory.
#pragma once

#include "rollouts/core/multi_agent.h"

struct MyEnv {
  // Options of rollouts.make_vec. The comment beside an option is its help text.
  struct Config {
    std::int32_t num_seekers = 2;  // agents that look for the others
    std::int32_t num_hiders = 3;   // agents that are looked for
    std::int32_t length = 20;      // fields on the line
  };

  // The part of the state that agents share, as plain data. The rest of the state is in the arrays
  // of Agents.
  struct World {
    std::int32_t num_found;
  };

  // Arrays over all agents, group after group; they begin as zeros in every episode.
  struct Agents {
    std::int32_t* position;
  };

  using Obs = float;  // element type of all observations
  using Ref = rollouts::WorldRef<MyEnv>;

  static constexpr std::int32_t kActions = 3;  // 0 left, 1 stay, 2 right

  // Groups of agents with equal spaces, at most 8; their sizes may be options.
  static rollouts::EnvSpec MakeSpec(const Config& config) {
    const rollouts::SpaceSpec observation = {
        .dtype = rollouts::DType::kFloat32, .ndim = 1, .shape = {3}, .low = {-1}, .high = {1}};
    const rollouts::SpaceSpec action = {.dtype = rollouts::DType::kInt64, .n = kActions};
    rollouts::EnvSpec spec;
    // estimated time of a step, by which the pool sizes its work
    spec.step_cost_ns = rollouts::EnvSpec::CostNs(10, config.num_seekers + config.num_hiders);
    AddGroup(spec, {"seeker", config.num_seekers, observation, action});
    AddGroup(spec, {"hider", config.num_hiders, observation, action});
    return spec;
  }

  // The names of the options, and checks of their values: Finite, Positive, Probability or Between.
  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("num_seekers", config.num_seekers);
    visit("num_hiders", config.num_hiders);
    visit("length", config.length);
  }
  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Between("num_seekers", config.num_seekers, 1, 1000);
    check.Between("num_hiders", config.num_hiders, 1, 1000);
    check.Between("length", config.length, 2, 100'000);
  }

  // The arrays of Agents; `visit("name", agents.name, k)` where an agent has k elements.
  template <typename Visitor>
  static void VisitFields(const Config&, Agents& agents, Visitor& visit) {
    visit("position", agents.position);
  }

  // Begins an episode.
  ROLLOUTS_HD static void Reset(const Ref& w, rollouts::Rng& rng) {
    for (std::int32_t i = 0; i < w.num_agents; ++i) {
      w.agents.position[i] = static_cast<std::int32_t>(rng.Below(w.config.length));
    }
    w.world.num_found = 0;
  }

  // A step consists of phases. In each phase, StepAgent runs for every agent, in any order or for
  // all at once. So it writes only the numbers of its own agent. It reads numbers of other agents
  // only if the phase does not write them. It also runs for agents that have left (status.active is
  // 0).
  static constexpr int kPhases = 2;

  template <int kPhase>
  ROLLOUTS_HD static void StepAgent(const Ref& w, std::int32_t agent) {
    const bool seeks = agent < w.config.num_seekers;
    if constexpr (kPhase == 0) {
      // every agent moves; the actions of a group begin with that of its first agent
      const std::int32_t action = seeks ? w.actions.Of<std::int32_t>(0)[agent]
                                        : w.actions.Of<std::int32_t>(1)[agent - w.config.num_seekers];
      const std::int32_t moved = w.agents.position[agent] + action - 1;
      w.agents.position[agent] = rollouts::Clip(moved, 0, w.config.length - 1);
    } else if (!seeks && w.status.active[agent]) {
      // hiders check whether a seeker is on their field; a found hider leaves the game
      const bool found = Nearest(w, agent, 0, w.config.num_seekers) == 0;
      w.status.reward[agent] = found ? -1 : 0.1;
      w.status.terminated[agent] = found;
    }
  }

  // Runs once, after all phases, for what concerns several agents, such as rewards for a group.
  // Returns whether the game is over; it is over, too, when every agent has left.
  ROLLOUTS_HD static bool EndStep(const Ref& w, rollouts::Rng&) {
    std::int32_t found = 0;
    for (std::int32_t i = w.config.num_seekers; i < w.num_agents; ++i) {
      found += w.status.terminated[i];
    }
    for (std::int32_t i = 0; i < w.config.num_seekers; ++i) w.status.reward[i] = found;
    w.world.num_found += found;
    return w.world.num_found == w.config.num_hiders;
  }

  // Writes every element of one agent's observation; changes nothing.
  ROLLOUTS_HD static void Observe(const Ref& w, std::int32_t agent, Obs* obs) {
    const bool seeks = agent < w.config.num_seekers;
    const auto length = static_cast<float>(w.config.length);
    const std::int32_t first = seeks ? w.config.num_seekers : 0;
    const std::int32_t end = seeks ? w.num_agents : w.config.num_seekers;
    obs[0] = static_cast<float>(w.agents.position[agent]) / length;
    obs[1] = static_cast<float>(Nearest(w, agent, first, end)) / length;
    obs[2] = static_cast<float>(w.world.num_found) / static_cast<float>(w.config.num_hiders);
  }

 private:
  // The signed distance from an agent to the nearest of the agents in [first, end).
  ROLLOUTS_HD static std::int32_t Nearest(const Ref& w, std::int32_t agent, std::int32_t first,
                                          std::int32_t end) {
    std::int32_t least = w.config.length;
    for (std::int32_t i = first; i < end; ++i) {
      const std::int32_t way = w.agents.position[i] - w.agents.position[agent];
      const bool gone = i >= w.config.num_seekers && (!w.status.active[i] || w.status.terminated[i]);
      if (!gone && Absolute(way) < Absolute(least)) least = way;
    }
    return least;
  }
  ROLLOUTS_HD static std::int32_t Absolute(std::int32_t x) { return x < 0 ? -x : x; }
};
