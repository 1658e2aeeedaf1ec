// SPDX-License-Identifier: Apache-2.0
// Light environments on a GPU, or on the host in its place: a thread for each environment, states
// field by field, and one launch for a whole step (core/step.h).
#pragma once

#include "rollouts/core/env.h"
#include "rollouts/core/info_columns.h"
#include "rollouts/core/step.h"
#include "rollouts/device/grid.h"
#include "rollouts/device/launch.h"
#include "rollouts/device/numbers.h"

namespace rollouts {

// Arrays for rows; an array that is not wanted is null.
struct DeviceRows {
  std::uint8_t* obs;
  std::uint8_t* final_obs;  // (N, ...), valid where an episode ended; null unless same-step
  float* reward;
  std::uint8_t* terminated;
  std::uint8_t* truncated;
  double* episode_return;
  std::int32_t* episode_length;
  void* infos[EnvSpec::kMaxInfos];
  void* begun_infos[EnvSpec::kMaxInfos];
};

// Takes the place of DeviceRows in steps whose rows are not kept.
struct NoRows {
  static constexpr std::uint8_t* final_obs = nullptr;
};

// Arguments of a launch. The same bytes on host and device; rollouts/envs/kernel/launch_args.py
// writes them.
struct EnvLaunch {
  std::int64_t num_envs;
  const void* configs;
  std::int64_t config_stride;  // counted in Configs; 0 where all environments share one
  std::uint32_t* states;       // (words of a State, N); (N, words) where stepped in place
  ClockColumns clock;
  StepRules rules;
  const std::uint8_t* commands;  // a Command for each environment; null: `command` for all
  std::int32_t command;
  std::int32_t num_steps;
  const void* actions;
  std::int32_t action_bytes;  // bytes of an element: 4 or 8
  ActionSource action_source;
  std::uint64_t action_seed;
  std::int64_t action_step;   // number of the first step, for random actions
  void* taken;                // null, or gets the (K, N, size) actions
  std::int64_t record_steps;  // 0: only the rows of the last step are kept
  DeviceRows rows;
  EpisodeTotals totals;
  std::uint64_t* fault;
};

template <typename Clock>
ROLLOUTS_HD inline void WriteOutcome(const DeviceRows& out, std::int64_t row, const Clock& clock,
                                     const Outcome& outcome) {
  out.reward[row] = static_cast<float>(outcome.reward);
  out.terminated[row] = outcome.terminated;
  out.truncated[row] = outcome.truncated;
  out.episode_return[row] = clock.episode_return;
  out.episode_length[row] = clock.elapsed_steps;
}
template <typename Clock>
ROLLOUTS_HD inline void WriteOutcome(const NoRows&, std::int64_t, const Clock&, const Outcome&) {}

// Copies a long row, with the largest words that all rows of that length allow.
template <std::int64_t kBytes>
ROLLOUTS_HD inline void CopyRow(const void* from, std::uint8_t* to) {
  constexpr std::int64_t kUnit = kBytes % 16 == 0 ? 16 : kBytes & -kBytes;
  struct alignas(kUnit) Unit {
    std::uint8_t bytes[kUnit];
  };
  for (std::int64_t i = 0; i < kBytes / kUnit; ++i) {
    reinterpret_cast<Unit*>(to)[i] = static_cast<const Unit*>(from)[i];
  }
}

// Writes a row of any type that observations may have, 16 bytes at once where the length of a row
// allows that.
template <typename To, typename From, std::int64_t kSize>
ROLLOUTS_HD inline void WriteRow(const From (&from)[kSize], std::uint8_t* array, std::int64_t row) {
  struct alignas(16) Chunk {
    std::uint32_t words[4];
  };
  constexpr std::int64_t kBytes = kSize * static_cast<std::int64_t>(sizeof(To));
  std::uint8_t* const to = array + row * kBytes;
  if constexpr (kSameType<To, From> && kBytes > 64) {
    CopyRow<kBytes>(from, to);
    return;
  }
  alignas(16) To numbers[kSize];
  for (std::int64_t i = 0; i < kSize; ++i) numbers[i] = NumberAs<To>::Of(from[i]);
  if constexpr (kBytes % 16 == 0 && kBytes <= 64) {
    for (std::int64_t i = 0; i < kBytes / 16; ++i) {
      reinterpret_cast<Chunk*>(to)[i] = reinterpret_cast<const Chunk*>(numbers)[i];
    }
  } else {
    for (std::int64_t i = 0; i < kSize; ++i) reinterpret_cast<To*>(to)[i] = numbers[i];
  }
}

// A light environment on the device, which notes failures, because nothing can be thrown there.
template <typename Env, typename ObsTo>
struct DeviceEnv : LightEnv<Env> {
  bool failed = false;  // in some step
  bool broken = false;  // in the last step: its observation is zeros

  ROLLOUTS_HD void Reset(Rng& rng, bool forced) {
    LightEnv<Env>::Reset(rng, forced);
    broken = false;
  }

  ROLLOUTS_HD StepResult Step(const typename Env::Action* action, Rng& rng) {
    StepResult result = LightEnv<Env>::Step(action, rng);
    if constexpr (requires { Env::kStateNames; }) {
      constexpr std::size_t kFields = sizeof(typename Env::State) / sizeof(Real);
      Real sum = 0;
      for (std::size_t f = 0; f < kFields; ++f) {
        sum += reinterpret_cast<const Real*>(&this->state)[f] * Real(0);
      }
      // `sum` is NaN where a field is not finite
      if (sum != 0) {
        failed = broken = true;
        result = StepResult::Of(0, false);
        result.cuts_off = true;
      }
    }
    return result;
  }

  template <typename Out>
  ROLLOUTS_HD void ObserveRow(const Out& out, bool final) const {
    constexpr std::int64_t kSize = Env::kSpec.observation.size();
    alignas(16) typename Env::Obs numbers[kSize] = {};
    if (!broken) Env::Observe(this->config, this->state, numbers);
    WriteRow<ObsTo>(numbers, final ? out.view.final_obs : out.view.obs, out.row);
  }
  ROLLOUTS_HD void ObserveRow(const BasicRowRef<NoRows>&, bool) const {}
};

template <typename Env, typename ObsTo>
class EnvKernel {
  using Action = typename Env::Action;
  using State = typename Env::State;
  static constexpr std::int64_t kActionSize = Env::kSpec.action.size();
  static constexpr std::int64_t kWords = (sizeof(State) + 3) / 4;
  static_assert(sizeof(State) % 4 == 0);

 public:
  // Runs the environments of one block. `kMany`: runs num_steps steps instead of one, which takes
  // more registers.
  template <bool kMany>
  ROLLOUTS_HD static void Run(const Block& block, const EnvLaunch& launch) {
    const std::int64_t first = block.index() * block.num_threads();
    block.EachThread([&](std::int32_t thread) {
      const std::int64_t env = first + thread;
      if (env < launch.num_envs) RunEnv<kMany>(launch, env);
    });
  }

 private:
  struct Words {
    std::uint32_t word[kWords];
  };

  template <bool kMany>
  ROLLOUTS_HD static void RunEnv(const EnvLaunch& launch, std::int64_t env) {
    const auto& config =
        static_cast<const typename Env::Config*>(launch.configs)[env * launch.config_stride];
    if constexpr (4 * kWords > kMostLoadedState) {
      RunOn<kMany>(launch, env, config, reinterpret_cast<State*>(launch.states)[env]);
    } else {
      Words words;
      for (std::int64_t w = 0; w < kWords; ++w) {
        words.word[w] = launch.states[w * launch.num_envs + env];
      }
      State state = __builtin_bit_cast(State, words);
      RunOn<kMany>(launch, env, config, state);
      words = __builtin_bit_cast(Words, state);
      for (std::int64_t w = 0; w < kWords; ++w) {
        launch.states[w * launch.num_envs + env] = words.word[w];
      }
    }
  }

  template <bool kMany>
  ROLLOUTS_HD static void RunOn(const EnvLaunch& launch, std::int64_t env,
                                const typename Env::Config& config, State& state) {
    DeviceEnv<Env, ObsTo> ref{{config, state}};
    ClockRef clock(launch.clock, env);
    if constexpr (kMany) {
      RunSteps(launch, env, ref, clock);
    } else {
      RunStep(launch, env, 0, ref, clock, launch.rows, env);
    }
    if (ref.failed) Report(launch.fault, clock.env_id, Fault::kNotFinite);
  }

  // Runs K steps, with the clock in registers.
  ROLLOUTS_HD static void RunSteps(const EnvLaunch& launch, std::int64_t env,
                                   DeviceEnv<Env, ObsTo>& ref, ClockRef& stored) {
    EpisodeClock clock{stored.seed,          stored.env_id,         stored.next_episode,
                       stored.draws,         stored.elapsed_steps,  stored.episode_return,
                       stored.ended != 0,    stored.stream_id};
    for (std::int32_t k = 0; k < launch.num_steps; ++k) {
      if (launch.record_steps != 0 || k == launch.num_steps - 1) {
        const std::int64_t row = launch.record_steps != 0 ? k * launch.num_envs + env : env;
        RunStep(launch, env, k, ref, clock, launch.rows, row);
      } else {
        RunStep(launch, env, k, ref, clock, NoRows{}, 0);
      }
    }
    stored.next_episode = clock.next_episode;
    stored.draws = clock.draws;
    stored.elapsed_steps = clock.elapsed_steps;
    stored.episode_return = clock.episode_return;
    stored.ended = clock.ended;
  }

  template <typename Clock, typename Rows>
  ROLLOUTS_HD static void RunStep(const EnvLaunch& launch, std::int64_t env, std::int32_t k,
                                  DeviceEnv<Env, ObsTo>& ref, Clock& clock, const Rows& rows,
                                  std::int64_t row) {
    auto command = static_cast<Command>(launch.commands ? launch.commands[env] : launch.command);
    if (command == Command::kStep && clock.ended &&
        launch.rules.autoreset == AutoresetMode::kDisabled) {
      // the environment stays unchanged, and a fault is reported
      Report(launch.fault, clock.env_id, Fault::kEnded);
      command = Command::kObserve;
    }
    const bool is_step = IsStep(command, clock);
    Action action[kActionSize] = {};
    // a step that begins an episode reads its action too, which has no effect
    if (command == Command::kStep) TakeAction(launch, env, k, clock, action);
    const auto ended_before = clock.ended;
    RunCommand(
        command, launch.rules, ref, clock, action, [&] { return BasicRowRef<Rows>{rows, row}; },
        [&](const BasicRowRef<Rows>& out) {
          if (is_step) CountEpisode(launch.totals, env, clock, ended_before);
          WriteInfos(ref, out);
        });
  }

  ROLLOUTS_HD static void WriteInfos(const DeviceEnv<Env, ObsTo>& ref,
                                     const BasicRowRef<DeviceRows>& out) {
    ref.WriteInfoRow(out.view.infos, out.row);
    // where the episode ends in this row, WriteBegunInfos then replaces these by the infos of the
    // next episode
    if (out.view.begun_infos[0]) ref.WriteInfoRow(out.view.begun_infos, out.row);
  }
  ROLLOUTS_HD static void WriteInfos(const DeviceEnv<Env, ObsTo>&, const BasicRowRef<NoRows>&) {}

  template <typename Clock>
  ROLLOUTS_HD static void TakeAction(const EnvLaunch& launch, std::int64_t env, std::int32_t k,
                                     const Clock& clock, Action* action) {
    if (launch.action_source == ActionSource::kRandom) {
      const auto step = static_cast<std::uint64_t>(launch.action_step + k);
      Rng rng(launch.action_seed, clock.env_id, static_cast<std::uint32_t>(step));
      for (std::int64_t i = 0; i < kActionSize; ++i) {
        action[i] = RandomAction<Action>(Env::kSpec.action, static_cast<std::int32_t>(i), rng);
      }
    } else {
      const bool is_sequence = launch.action_source == ActionSource::kSequence;
      const std::int64_t row = is_sequence ? k * launch.num_envs + env : env;
      for (std::int64_t i = 0; i < kActionSize; ++i) {
        action[i] = Given(launch, row * kActionSize + i, static_cast<std::int32_t>(i), clock);
      }
    }
    if (launch.taken) {
      Action* const taken =
          static_cast<Action*>(launch.taken) + (k * launch.num_envs + env) * kActionSize;
      for (std::int64_t i = 0; i < kActionSize; ++i) taken[i] = action[i];
    }
  }

  // An element of the caller's actions. Where it is outside a discrete space, or not finite in a
  // Box, 0 is taken and a fault is reported.
  template <typename Clock>
  ROLLOUTS_HD static Action Given(const EnvLaunch& launch, std::int64_t at, std::int32_t element,
                                  const Clock& clock) {
    constexpr const SpaceSpec& kSpace = Env::kSpec.action;
    if constexpr (kSpace.n > 0 || kSpace.multi_discrete) {
      const std::int64_t value = launch.action_bytes == 8
                                     ? static_cast<const std::int64_t*>(launch.actions)[at]
                                     : static_cast<const std::int32_t*>(launch.actions)[at];
      const std::int32_t bound = kSpace.elementwise ? element : 0;
      const std::int64_t count =
          kSpace.n > 0 ? kSpace.n : static_cast<std::int64_t>(kSpace.high[bound]) + 1;
      if (value >= 0 && value < count) return static_cast<Action>(value);
    } else {
      const float value = static_cast<const float*>(launch.actions)[at];
      if (value - value == 0) return static_cast<Action>(value);
    }
    Report(launch.fault, clock.env_id, Fault::kNoSuchAction);
    return 0;
  }
};

}  // namespace rollouts

// The entry points that loaders look up by name: one for one step, and one for num_steps. `OBS` is
// float, rollouts::Float16 and so on.
#if defined(__CUDACC_RTC__)
#define ROLLOUTS_ENV_ENTRY(NAME, MANY, ENV, OBS)                                   \
  extern "C" __global__ void __launch_bounds__(256) NAME(rollouts::EnvLaunch launch) { \
    rollouts::EnvKernel<ENV, OBS>::Run<MANY>(rollouts::Block(), launch);           \
  }
#else
#define ROLLOUTS_ENV_ENTRY(NAME, MANY, ENV, OBS)                                               \
  extern "C" void NAME(const rollouts::EnvLaunch* launch, std::int64_t num_blocks,             \
                       std::int32_t num_threads, std::int32_t backwards) {                     \
    for (std::int64_t i = 0; i < num_blocks; ++i) {                                            \
      const rollouts::Block block(backwards ? num_blocks - 1 - i : i, num_threads, backwards); \
      rollouts::EnvKernel<ENV, OBS>::Run<MANY>(block, *launch);                                \
    }                                                                                          \
  }
extern "C" __attribute__((used)) inline std::int64_t rollouts_launch_bytes() { return sizeof(rollouts::EnvLaunch); }
#endif

#define ROLLOUTS_ENV_KERNEL(ENV, OBS)                    \
  ROLLOUTS_ENV_ENTRY(rollouts_step, false, ENV, OBS)     \
  ROLLOUTS_ENV_ENTRY(rollouts_steps, true, ENV, OBS)
