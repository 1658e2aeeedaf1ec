// SPDX-License-Identifier: Apache-2.0
// A world of agents with the interface of core/step.h, stepped by a team of threads.
#pragma once

#include "rollouts/core/multi_agent.h"
#include "rollouts/device/numbers.h"
#include "rollouts/device/world_launch.h"

namespace rollouts {

// Memory shared by a team's threads. It holds the addresses of the world's arrays, so that a phase
// loads those that it uses, and none stays in a register from one phase to the next.
template <typename Env>
struct TeamState {
  StepResult result;
  std::uint32_t draws;
  std::int32_t terminated;
  const typename Env::Config* config;
  typename Env::World* world;  // at the beginning of its memory
  typename Env::Agents agents;
  AgentStatus status;
  AgentActions actions;
  const float* tables;
  std::int32_t num_agents;
  std::int32_t elapsed_steps;
  std::int32_t max_episode_steps;

  // Copied, because values behind a reference are loaded again after each store.
  ROLLOUTS_HD WorldRef<Env> Ref() const {
    return {*config, *world,     agents,        status,           actions,
            tables,  num_agents, elapsed_steps, max_episode_steps};
  }
};

// The rows of a step, as core/step.h needs them. `written`: false in steps whose rows are not kept.
template <typename Team>
struct TeamRows {
  static constexpr std::uint8_t* final_obs = nullptr;  // unused: worlds never set marks_end

  const Team& team;
  const WorldRows& rows;
  bool written;
  bool& truncated;  // set by each outcome
};

template <typename Team, typename Clock>
ROLLOUTS_HD inline void WriteOutcome(const TeamRows<Team>& out, std::int64_t row,
                                     const Clock& clock, const Outcome& outcome) {
  out.truncated = outcome.truncated;
  if (!out.written || !out.team.IsFirst()) return;
  out.rows.ended[row] = outcome.terminated || outcome.truncated;
  out.rows.episode_length[row] = clock.elapsed_steps;
}

// One world with the interface of core/step.h, stepped by a team, or by a thread alone.
template <typename Env, typename ObsTo, typename Team, typename Shape>
class TeamWorld {
 public:
  using Obs = typename Env::Obs;
  using Action = std::uint8_t;

  // `state`, which the team shares, has all values that stay the same from step to step.
  ROLLOUTS_HD TeamWorld(const Team& team, const WorldLaunch& launch, const EpisodeClock& clock,
                        TeamState<Env>& state)
      : team_(team), launch_(launch), clock_(clock), state_(state) {}

  ROLLOUTS_HD void Reset(Rng& rng, bool /*forced*/) {
    if constexpr (Shape::kIsAlone) {
      Begin(rng);
    } else {
      CallBegin(rng);
    }
  }

  ROLLOUTS_HD StepResult Step(const Action* actions, Rng& rng) {
    team_.Once([&] {
      state_.elapsed_steps = clock_.elapsed_steps + 1;
      Shape::EachGroup(launch_, [&](const GroupFacts& group) {
        state_.actions.of_group[group.index] = actions + group.action_offset;
      });
    });
    ForEachAgent([](const WorldRef<Env>& world, std::int32_t i) { BeginAgent(world.status, i); });
    Phases<0>();
    team_.Once([&] {
      state_.terminated = Env::EndStep(state_.Ref(), rng);
      state_.draws = rng.draws();
    });
    TakeDraws(rng);
    const bool terminated = state_.terminated;
    ForEachAgent([=](const WorldRef<Env>& world, std::int32_t i) {
      EndAgent(world.status, i, terminated);
    });
    SumRewards(terminated);
    StepResult result = state_.result;
    stepped_ = true;
    if (result.reward - result.reward != 0) {
      Report(launch_.fault, clock_.env_id, Fault::kNotFinite);
      broken_ = true;
      result = StepResult::Of(0, false);
      result.cuts_off = true;
    }
    return result;
  }

  // Writes the observations of a row. The last row that a step writes is never `final`, so the
  // threads of a warp that are alone with their worlds write theirs together.
  template <typename Out>
  ROLLOUTS_HD void ObserveRow(const Out& out, bool final) const {
    if (!out.view.written) return;
    if constexpr (Shape::kIsAlone) {
      ObserveAll(out, final);
    } else {
      CallObserve(out, final);
    }
  }

  // Writes rewards and ends of each agent; to be called after the row's outcome is written, and
  // before an autoreset. Where the world failed, its active agents are truncated without a reward.
  template <typename Out>
  ROLLOUTS_HD void WriteAgents(const Out& out) const {
    if (!out.view.written) return;
    Shape::EachGroup(launch_, [&](const GroupFacts& group) {
      const GroupRows& rows = out.view.rows.groups[group.index];
      team_.ForEach(group.num_agents, [&](std::int32_t i) {
        const std::int32_t agent = group.first_agent + i;
        AgentOutcome one = OutcomeOf(state_.status, agent, stepped_, out.view.truncated);
        if (broken_) one = {0, 0, one.active, one.active};
        const std::int64_t at = out.row * group.num_agents + i;
        rows.reward[at] = static_cast<float>(one.reward);
        rows.terminated[at] = one.terminated;
        rows.truncated[at] = one.truncated;
        rows.active[at] = one.active;
        rows.episode_return[at] = broken_ ? 0 : state_.status.episode_return[agent];
      });
    });
  }

  // Begins a row, in which the world was not stepped yet.
  ROLLOUTS_HD void BeginStep() { stepped_ = false; }

 private:
  // The agents, for work on all of them together.
  struct TeamCrew {
    const Team& team;
    const TeamState<Env>& state;

    ROLLOUTS_HD const typename Env::Config& config() const { return *state.config; }
    template <typename Run>
    ROLLOUTS_HD void ForEach(std::int32_t count, Run&& run) const {
      team.ForEach(count, [&](std::int32_t i) { run(state.Ref(), i); });
    }
  };

  // Calls functions without inlining them, where a kernel that calls them twice would become long.
  ROLLOUTS_NOINLINE void CallBegin(Rng& rng) { Begin(rng); }

  ROLLOUTS_HD void Begin(Rng& rng) {
    auto* const words = reinterpret_cast<std::uint64_t*>(state_.world);
    team_.ForEach(Shape::WorldBytes(launch_) / 8, [&](std::int32_t i) { words[i] = 0; });
    team_.ForEach(num_agents(), [&](std::int32_t i) { state_.status.active[i] = 1; });
    team_.Once([&] {
      state_.elapsed_steps = 0;
      Env::Reset(state_.Ref(), rng);
      state_.draws = rng.draws();
    });
    TakeDraws(rng);
    ResetPhases<0>();
    stepped_ = broken_ = false;
  }

  template <typename Out>
  ROLLOUTS_NOINLINE void CallObserve(const Out& out, bool final) const {
    ObserveAll(out, final);
  }
  template <typename Out>
  ROLLOUTS_HD void ObserveAll(const Out& out, bool final) const {
    Shape::EachGroup(launch_, [&](const GroupFacts& group) {
      const GroupRows& rows = out.view.rows.groups[group.index];
      auto* const array = reinterpret_cast<ObsTo*>(final ? rows.final_obs : rows.obs);
      if constexpr (Shape::kIsAlone) {
        ObserveAlone(group, array, out.row, final);
      } else {
        ObserveGroup(group, array + out.row * group.num_agents * group.obs_size);
      }
    });
  }

  ROLLOUTS_HD std::int32_t num_agents() const { return Shape::NumAgents(launch_); }

  // Runs `run(world, agent)` for all agents.
  template <typename Run>
  ROLLOUTS_HD void ForEachAgent(Run&& run) const {
    team_.ForEach(num_agents(), [&](std::int32_t i) { run(state_.Ref(), i); });
  }

  ROLLOUTS_HD void SumRewards(bool terminated) const {
    if constexpr (Shape::kIsAlone) {
      state_.result = SumAgents(state_.status, num_agents(), terminated);
    } else {
      SumOfTeam(terminated);
    }
  }

  ROLLOUTS_HD void SumOfTeam(bool terminated) const {
    if (launch_.memory.sums == 0) {
      team_.Once([&] {
        const AgentStatus status = state_.status;
        state_.result = SumAgents(status, launch_.num_agents, terminated);
      });
      return;
    }
    auto* const parts = reinterpret_cast<AgentSums*>(team_.memory() + launch_.memory.sums);
    team_.ForEach(kSumParts, [&](std::int32_t part) {
      const AgentStatus status = state_.status;
      parts[part] = SumPart(status, launch_.num_agents, part);
    });
    team_.Once([&] {
      AgentSums sums;
      for (std::int32_t part = 0; part < kSumParts; ++part) sums.Add(parts[part]);
      state_.result = ResultOf(sums, terminated);
    });
  }

  // Gives every thread of the team the count of draws, after one of them drew.
  ROLLOUTS_HD void TakeDraws(Rng& rng) const {
    if constexpr (Shape::kIsAlone) return;
    rng = Rng(clock_.seed, clock_.stream_id, rng.episode(), state_.draws);
  }

  template <int kPhase>
  ROLLOUTS_HD void Phases() const {
    if constexpr (kPhase < Env::kPhases) {
      if constexpr (WorksTogether<Env>) Env::template StepTogether<kPhase>(TeamCrew{team_, state_});
      ForEachAgent([](const WorldRef<Env>& world, std::int32_t i) {
        Env::template StepAgent<kPhase>(world, i);
      });
      Phases<kPhase + 1>();
    }
  }

  template <int kPhase>
  ROLLOUTS_HD void ResetPhases() const {
    if constexpr (ResetsAgents<Env>) {
      if constexpr (kPhase < Env::kResetPhases) {
        if constexpr (WorksTogether<Env>) {
          Env::template ResetTogether<kPhase>(TeamCrew{team_, state_});
        }
        ForEachAgent([](const WorldRef<Env>& world, std::int32_t i) {
          Env::template ResetAgent<kPhase>(world, i);
        });
        ResetPhases<kPhase + 1>();
      }
    }
  }

  // Writes (A, size) observations, one agent's at a time. Unless `final`, all threads of the warp
  // call this, and write the consecutive rows of their worlds together.
  ROLLOUTS_HD void ObserveAlone(const GroupFacts& group, ObsTo* array, std::int64_t row,
                                bool final) const {
    const std::int32_t size = group.obs_size;
    team_.ForEach(group.num_agents, [&](std::int32_t i) {
      auto* const own = reinterpret_cast<Obs*>(team_.slot(team_.lane()));
      Observe(group.first_agent + i, size, own);
      ObsTo* const to = array + (row * group.num_agents + i) * size;
      if (final) {
        for (std::int32_t j = 0; j < size; ++j) to[j] = NumberAs<ObsTo>::Of(own[j]);
        return;
      }
      team_.Share(size, [&](std::int32_t lane, std::int32_t j) {
        const std::int64_t rows = (lane - team_.lane()) * group.num_agents;
        to[rows * size + j] =
            NumberAs<ObsTo>::Of(reinterpret_cast<const Obs*>(team_.slot(lane))[j]);
      });
    });
  }

  // Writes (A, size) observations. Where they fit into shared memory they are written there first,
  // so that a warp's threads write neighbouring numbers.
  ROLLOUTS_HD void ObserveGroup(const GroupFacts& group, ObsTo* to) const {
    const std::int32_t size = group.obs_size, rows = launch_.memory.obs_rows;
    if (rows == 0) {
      if constexpr (kSameType<Obs, ObsTo>) {
        team_.ForEach(group.num_agents, [&](std::int32_t i) {
          Observe(group.first_agent + i, size, to + std::int64_t{i} * size);
        });
      }
      return;
    }
    auto* const shared = reinterpret_cast<Obs*>(team_.memory() + launch_.memory.obs);
    for (std::int32_t first = 0; first < group.num_agents; first += rows) {
      const std::int32_t count = group.num_agents - first < rows ? group.num_agents - first : rows;
      team_.ForEach(count, [&](std::int32_t i) {
        Observe(group.first_agent + first + i, size, shared + i * size);
      });
      ObsTo* const part = to + std::int64_t{first} * size;
      team_.ForEach(std::int64_t{count} * size,
                    [&](std::int32_t i) { part[i] = NumberAs<ObsTo>::Of(shared[i]); });
    }
  }

  ROLLOUTS_HD void Observe(std::int32_t agent, std::int32_t size, Obs* obs) const {
    if (broken_) {
      for (std::int32_t i = 0; i < size; ++i) obs[i] = 0;
    } else {
      Env::Observe(state_.Ref(), agent, obs);
    }
  }

  const Team& team_;
  const WorldLaunch& launch_;
  const EpisodeClock& clock_;
  TeamState<Env>& state_;
  bool stepped_ = false;
  bool broken_ = false;  // in the last step: its observations are zeros
};

}  // namespace rollouts
