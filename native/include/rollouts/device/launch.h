// SPDX-License-Identifier: Apache-2.0
// The parts that all kernels' launches have in common: clocks, counts, faults, sources of actions.
#pragma once

#include "rollouts/core/step.h"
#include "rollouts/device/grid.h"

namespace rollouts {

// Members of an EpisodeClock, each an array over environments.
struct ClockColumns {
  std::uint64_t* seed;
  std::uint32_t* env_id;
  std::uint32_t* next_episode;
  std::uint32_t* draws;
  std::int32_t* elapsed_steps;
  double* episode_return;
  std::uint8_t* ended;
  std::uint32_t* stream_id;
};

// One environment's clock in place: members that a step does not read are not loaded.
struct ClockRef {
  ROLLOUTS_HD ClockRef(const ClockColumns& of, std::int64_t env)
      : seed(of.seed[env]),
        env_id(of.env_id[env]),
        next_episode(of.next_episode[env]),
        draws(of.draws[env]),
        elapsed_steps(of.elapsed_steps[env]),
        episode_return(of.episode_return[env]),
        ended(of.ended[env]),
        stream_id(of.stream_id[env]) {}

  std::uint64_t& seed;
  std::uint32_t& env_id;
  std::uint32_t& next_episode;
  std::uint32_t& draws;
  std::int32_t& elapsed_steps;
  double& episode_return;
  std::uint8_t& ended;
  std::uint32_t& stream_id;
};

// Totals of each environment's ended episodes since the totals were last collected.
struct EpisodeTotals {
  std::int64_t* episodes;
  std::int64_t* lengths;
  double* returns;
};

enum class ActionSource : std::int32_t {
  kGiven,     // (N, size): the same in all steps of a launch
  kSequence,  // (K, N, size)
  kRandom,    // uniform over the space, a function of (seed, env_id, step)
};

// Kinds of faults. Of all faults a launch keeps the one with the least (env_id << 8 | kind), and
// stores that number; it stores all ones if there is no fault.
enum class Fault : std::uint64_t {
  kNotFinite = 1,
  kNoSuchAction = 2,
  kEnded = 3,
  kLayout = 4,  // host and device disagree about where a world's arrays lie
  kPolicy = 5,  // a value or log_prob that is not finite
};

ROLLOUTS_HD inline void Report(std::uint64_t* fault, std::uint32_t env_id, Fault kind) {
  AtomicMin(fault, std::uint64_t{env_id} << 8 | static_cast<std::uint64_t>(kind));
}

// Updates the totals after a step and before the autoreset that may follow it.
template <typename Clock, typename Ended>
ROLLOUTS_HD inline void CountEpisode(const EpisodeTotals& totals, std::int64_t env,
                                     const Clock& clock, Ended ended_before) {
  if (!clock.ended || ended_before) return;
  totals.episodes[env] += 1;
  totals.lengths[env] += clock.elapsed_steps;
  totals.returns[env] += clock.episode_return;
}

// A uniform action of a space, which is Discrete or a Box of a few numbers.
template <typename Action>
ROLLOUTS_HD inline Action RandomAction(const SpaceSpec& space, std::int32_t element, Rng& rng) {
  if (space.n > 0) return static_cast<Action>(rng.Below(static_cast<std::uint32_t>(space.n)));
  const std::int32_t bound = space.elementwise ? element : 0;
  if (space.multi_discrete) {
    return static_cast<Action>(rng.Below(static_cast<std::uint32_t>(space.high[bound]) + 1));
  }
  return static_cast<Action>(rng.Uniform(space.low[bound], space.high[bound]));
}

}  // namespace rollouts
