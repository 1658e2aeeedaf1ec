// SPDX-License-Identifier: Apache-2.0
// The only home of elapsed steps, truncation, autoreset, final observations and
// episode statistics, for light and heavy environments, on host and device.
#pragma once

#include "rollouts/core/batch_view.h"
#include "rollouts/core/env.h"

namespace rollouts {

enum class AutoresetMode : std::int32_t { kNextStep, kSameStep, kDisabled };

// What the pool asks of an environment.
enum class Command : std::uint8_t {
  kStep,
  kReset,    // start a new episode whatever the state
  kObserve,  // write the current observation again; nothing moves
};

// Everything about an environment's episode that its dynamics need not know.
struct EpisodeClock {
  std::uint64_t seed = 0;
  std::uint32_t env_id = 0;        // global
  std::uint32_t next_episode = 0;  // number of the next episode since seeding
  std::uint32_t draws = 0;         // random words taken in this episode
  std::int32_t elapsed_steps = 0;
  double episode_return = 0;
  bool ended = false;  // the episode is over and the next one has not begun

  ROLLOUTS_HD void Seed(std::uint64_t new_seed) {
    seed = new_seed;
    next_episode = 0;
  }
};

struct StepRules {
  AutoresetMode autoreset = AutoresetMode::kNextStep;
  std::int32_t max_episode_steps = 0;  // 0: no limit
};

// A light environment seen through the interface of a heavy one.
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
};

// Starts the next episode. `forced`: asked for by the user, not by autoreset.
template <typename EnvRef>
ROLLOUTS_HD inline void BeginEpisode(EnvRef& env, EpisodeClock& clock, bool forced) {
  Rng rng(clock.seed, clock.env_id, clock.next_episode++);
  clock.elapsed_steps = 0;
  clock.episode_return = 0;
  env.Reset(rng, forced);
  clock.draws = rng.draws();
  clock.ended = false;
}

// Writes everything but the observation of one row.
ROLLOUTS_HD inline void WriteOutcome(const BatchView& out, std::int64_t row,
                                     const EpisodeClock& clock, double reward, bool terminated,
                                     bool truncated) {
  out.reward[row] = reward;
  out.terminated[row] = terminated;
  out.truncated[row] = truncated;
  out.env_id[row] = static_cast<std::int32_t>(clock.env_id);
  out.episode_return[row] = clock.episode_return;
  out.episode_length[row] = clock.elapsed_steps;
}

// Where a row goes; `take_row()` is called once, just before the first write, so
// that a slow environment does not hold a row while it computes.
struct RowRef {
  BatchView view;
  std::int64_t row;
};

// Runs one command on one environment and writes its row. `write_info(row_ref)`
// writes the environment's own info columns.
template <typename EnvRef, typename TakeRow, typename WriteInfo>
ROLLOUTS_HD inline void RunCommand(Command command, const StepRules& rules, EnvRef& env,
                                   EpisodeClock& clock, const typename EnvRef::Action* action,
                                   TakeRow&& take_row, WriteInfo&& write_info) {
  using Obs = typename EnvRef::Obs;
  double reward = 0;
  bool terminated = false;
  bool truncated = false;

  // a reset asked for, or due since the last step, takes the place of the step
  const bool begin = command == Command::kReset || (command == Command::kStep && clock.ended);
  if (begin) {
    BeginEpisode(env, clock, command == Command::kReset);
  } else if (command == Command::kStep) {
    Rng rng(clock.seed, clock.env_id, clock.next_episode - 1, clock.draws);
    const StepResult result = env.Step(action, rng);
    clock.draws = rng.draws();
    ++clock.elapsed_steps;
    clock.episode_return += result.score;
    reward = result.reward;
    terminated = result.terminated;
    truncated = rules.max_episode_steps > 0 && clock.elapsed_steps >= rules.max_episode_steps;
    clock.ended = terminated || truncated;
  }

  const RowRef out = take_row();
  WriteOutcome(out.view, out.row, clock, reward, terminated, truncated);
  write_info(out);

  // same-step: keep the last observation aside, show the first of the next episode
  if (clock.ended && rules.autoreset == AutoresetMode::kSameStep && command == Command::kStep) {
    env.Observe(out.view.template FinalObsRow<Obs>(out.row));
    BeginEpisode(env, clock, /*forced=*/false);
  }
  env.Observe(out.view.template ObsRow<Obs>(out.row));
}

}  // namespace rollouts
