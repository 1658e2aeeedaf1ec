// SPDX-License-Identifier: Apache-2.0
// An episode as the first part of an environment's saved state (support/state.h).
#pragma once

#include <cstdint>
#include <limits>

#include "rollouts/core/step.h"
#include "rollouts/support/errors.h"
#include "rollouts/support/state.h"

namespace rollouts {

// Writes how far an episode is. The environment's number is left out: a state may be restored into
// another environment.
inline void PutClock(StateWriter& writer, const EpisodeClock& clock) {
  writer.Put(clock.seed);
  writer.Put(clock.stream_id);
  writer.Put(clock.next_episode);
  writer.Put(clock.draws);
  writer.Put(clock.elapsed_steps);
  writer.Put(clock.episode_return);
  writer.Put(static_cast<std::uint8_t>(clock.ended));
}

// Throws SpecError for values that no clock can have.
inline EpisodeClock GetClock(StateReader& reader, std::uint32_t env_id) {
  EpisodeClock clock;
  // keeps the env_id of this environment: a state may come from another one
  clock.env_id = env_id;
  clock.seed = reader.Get<std::uint64_t>();
  clock.stream_id = reader.Get<std::uint32_t>();
  clock.next_episode = reader.Get<std::uint32_t>();
  clock.draws = reader.Get<std::uint32_t>();
  clock.elapsed_steps = reader.Get<std::int32_t>();
  clock.episode_return = reader.Get<double>();
  const auto ended = reader.Get<std::uint8_t>();
  // leaves room for one more step; a clock that has begun counts the next episode, which is at
  // least 1
  constexpr std::int32_t kMostSteps = std::numeric_limits<std::int32_t>::max();
  if (clock.elapsed_steps < 0 || clock.elapsed_steps == kMostSteps || clock.next_episode == 0 || ended > 1) {
    throw SpecError("has no episode that could be");
  }
  clock.ended = ended != 0;
  return clock;
}

}  // namespace rollouts
