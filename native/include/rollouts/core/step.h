// SPDX-License-Identifier: Apache-2.0
// The only code that handles elapsed steps, truncation, autoreset, final observations and episode
// statistics, for light and heavy environments, on host and device.
#pragma once

#include "rollouts/core/batch_view.h"
#include "rollouts/core/env.h"
#include "rollouts/core/info_columns.h"

namespace rollouts {

enum class AutoresetMode : std::int32_t { kNextStep, kSameStep, kDisabled };

// The commands that the pool gives to an environment.
enum class Command : std::uint8_t {
  kStep,
  kReset,    // start a new episode whatever the state
  kObserve,  // write the current observation again, without a step
};

// Everything about an environment's episode that its dynamics need not know. The functions below
// take this type or another with the same members.
struct EpisodeClock {
  std::uint64_t seed = 0;
  std::uint32_t env_id = 0;        // global; names its rows
  std::uint32_t next_episode = 0;  // number of the next episode since seeding
  std::uint32_t draws = 0;         // random words taken in this episode
  std::int32_t elapsed_steps = 0;
  double episode_return = 0;
  bool ended = false;  // the episode is over and the next one has not begun
  // Number of the random stream: the environment's env_id, unless it continues from the saved state
  // of another environment.
  std::uint32_t stream_id = 0;

  ROLLOUTS_HD void Seed(std::uint64_t new_seed) {
    seed = new_seed;
    stream_id = env_id;
    next_episode = 0;
  }
};

struct StepRules {
  AutoresetMode autoreset = AutoresetMode::kNextStep;
  std::int32_t max_episode_steps = 0;  // 0: no limit
};

// Gives a light environment the interface of a heavy one.
template <typename Env>
struct LightEnv {
  using Obs = typename Env::Obs;
  using Action = typename Env::Action;
  const typename Env::Config& config;
  typename Env::State& state;

  ROLLOUTS_HD void Reset(Rng& rng, bool /*forced*/) { Env::Reset(config, state, rng); }
  ROLLOUTS_HD StepResult Step(const Action* action, Rng& rng) {
    return Env::Step(config, state, action, rng);
  }
  ROLLOUTS_HD void Observe(Obs* obs) const { Env::Observe(config, state, obs); }
  // Writes one row of the info columns, if the environment has infos.
  ROLLOUTS_HD void WriteInfoRow(void* const* columns, std::int64_t row) const {
    if constexpr (kTellsInfo<Env>) {
      double values[NumInfoValues<Env>()];
      Env::WriteInfo(config, state, values);
      StoreInfos<Env>(values, columns, row);
    }
  }
};

// The random stream of the next episode.
template <typename Clock>
ROLLOUTS_HD inline Rng NextStream(const Clock& clock) {
  return Rng(clock.seed, clock.stream_id, clock.next_episode);
}

// Starts the next episode. `forced`: the user requested it, not autoreset.
template <typename EnvRef, typename Clock>
ROLLOUTS_HD inline void BeginEpisode(EnvRef& env, Clock& clock, bool forced) {
  Rng rng = NextStream(clock);
  ++clock.next_episode;
  clock.elapsed_steps = 0;
  clock.episode_return = 0;
  env.Reset(rng, forced);
  clock.draws = rng.draws();
  clock.ended = false;
}

// Result of a step after time limits were applied.
struct Outcome {
  double reward = 0;
  bool terminated = false;
  bool truncated = false;
};

// Adds a step of the dynamics to its episode's length and return.
template <typename Clock>
ROLLOUTS_HD inline Outcome EndStep(const StepRules& rules, Clock& clock,
                                   const StepResult& result) {
  ++clock.elapsed_steps;
  clock.episode_return += result.score;
  const bool truncated =
      result.cuts_off ||
      (rules.max_episode_steps > 0 && clock.elapsed_steps >= rules.max_episode_steps);
  clock.ended = result.terminated || truncated;
  return {result.reward, result.terminated || result.marks_end, truncated};
}

// Writes everything but the observation of one row.
template <typename Clock>
ROLLOUTS_HD inline void WriteOutcome(const BatchView& out, std::int64_t row, const Clock& clock,
                                     const Outcome& outcome) {
  out.reward[row] = outcome.reward;
  out.terminated[row] = outcome.terminated;
  out.truncated[row] = outcome.truncated;
  out.env_id[row] = static_cast<std::int32_t>(clock.env_id);
  out.episode_return[row] = clock.episode_return;
  out.episode_length[row] = clock.elapsed_steps;
}

// The place where a row is written; borrows the view. `take_row()` is called once, just before the
// first write, so that a slow environment does not hold a row while it computes.
template <typename View>
struct BasicRowRef {
  const View& view;
  std::int64_t row;
};
using RowRef = BasicRowRef<BatchView>;

// Fills row `row` of an array whose rows have `bytes` bytes; does nothing where there is no array.
ROLLOUTS_HD inline void FillRow(void* array, std::int64_t row, std::int64_t bytes,
                                std::uint8_t value) {
  if (!array) return;
  std::uint8_t* const first = static_cast<std::uint8_t*>(array) + row * bytes;
  for (std::int64_t i = 0; i < bytes; ++i) first[i] = value;
}

// Writes the row of an environment that failed: zeros, truncated for it and all its agents. Its
// next step begins a new episode.
ROLLOUTS_HD inline void WriteFailure(const RowRef& out, EpisodeClock& clock) {
  clock.ended = true;
  const BatchView& view = out.view;
  FillRow(view.obs, out.row, view.obs_bytes, 0);
  FillRow(view.final_obs, out.row, view.obs_bytes, 0);
  for (std::int32_t g = 0; g < view.num_groups; ++g) {
    const GroupView& group = view.groups[g];
    const std::int64_t agents = group.num_agents;
    FillRow(group.obs, out.row, agents * group.obs_bytes, 0);
    FillRow(group.final_obs, out.row, agents * group.obs_bytes, 0);
    FillRow(group.reward, out.row, agents * 8, 0);
    FillRow(group.episode_return, out.row, agents * 8, 0);
    FillRow(group.terminated, out.row, agents, 0);
    FillRow(group.truncated, out.row, agents, 1);
    FillRow(group.active, out.row, agents, 1);
  }
  WriteOutcome(view, out.row, clock, {.reward = 0, .terminated = false, .truncated = true});
}

// Writes an observation; `final`: as the last one of the episode that ended. An environment with
// ObserveRow writes its rows itself: one with several agents has a row for each.
template <typename EnvRef, typename Out>
ROLLOUTS_HD inline void WriteObs(const EnvRef& env, const Out& out, bool final) {
  if constexpr (requires { env.ObserveRow(out, final); }) {
    env.ObserveRow(out, final);
  } else {
    using Obs = typename EnvRef::Obs;
    env.Observe(final ? out.view.template FinalObsRow<Obs>(out.row)
                      : out.view.template ObsRow<Obs>(out.row));
  }
}

// Writes the infos of the episode that same-step autoreset began, where a reset writes infos.
template <typename EnvRef, typename Out>
ROLLOUTS_HD inline void WriteBegunInfos(const EnvRef& env, const Out& out) {
  if constexpr (requires { env.WriteInfoRow(out.view.begun_infos, out.row); }) {
    env.WriteInfoRow(out.view.begun_infos, out.row);
  }
}

// Same-step autoreset after a step that ended an episode: stores its last observation as the final
// one, and begins the next episode. True when it did.
template <typename EnvRef, typename Clock, typename Out>
ROLLOUTS_HD inline bool ResetInSameStep(const StepRules& rules, EnvRef& env, Clock& clock,
                                        const Out& out) {
  if (!clock.ended || rules.autoreset != AutoresetMode::kSameStep) return false;
  WriteObs(env, out, /*final=*/true);
  BeginEpisode(env, clock, /*forced=*/false);
  WriteBegunInfos(env, out);
  return true;
}

// True when the command is a step of the dynamics, and not a reset (requested, or due because the
// episode ended).
template <typename Clock>
ROLLOUTS_HD inline bool IsStep(Command command, const Clock& clock) {
  return command == Command::kStep && !clock.ended;
}

// True when the command is a reset, requested or due.
template <typename Clock>
ROLLOUTS_HD inline bool IsBegin(Command command, const Clock& clock) {
  return command == Command::kReset || (command == Command::kStep && clock.ended);
}

// Runs one command on one environment and writes its row. `write_info(row_ref)`
// writes the environment's own info columns.
template <typename EnvRef, typename Clock, typename TakeRow, typename WriteInfo>
ROLLOUTS_HD inline void RunCommand(Command command, const StepRules& rules, EnvRef& env,
                                   Clock& clock, const typename EnvRef::Action* action,
                                   TakeRow&& take_row, WriteInfo&& write_info) {
  Outcome outcome;
  const bool step = IsStep(command, clock);
  if (step) {
    Rng rng(clock.seed, clock.stream_id, clock.next_episode - 1, clock.draws);
    const StepResult result = env.Step(action, rng);
    clock.draws = rng.draws();
    outcome = EndStep(rules, clock, result);
  } else if (command != Command::kObserve) {
    BeginEpisode(env, clock, command == Command::kReset);
  }

  const auto out = take_row();
  WriteOutcome(out.view, out.row, clock, outcome);
  write_info(out);
  if (step && !ResetInSameStep(rules, env, clock, out) && outcome.terminated && !clock.ended &&
      out.view.final_obs) {
    // the end is only reported: the next step continues from the observation shown
    WriteObs(env, out, /*final=*/true);
  }
  WriteObs(env, out, /*final=*/false);
}

}  // namespace rollouts
