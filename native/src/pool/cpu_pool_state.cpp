// SPDX-License-Identifier: Apache-2.0
// Saving and loading environments of a CpuPool; cpu_pool.cpp steps them.
#include <algorithm>

#include "rollouts/pool/cpu_pool.h"
#include "rollouts/support/state.h"

namespace rollouts {
namespace {

// An environment's episode; its env_id is not part of the state.
void PutClock(StateWriter& writer, const EpisodeClock& clock) {
  writer.Put(clock.seed);
  writer.Put(clock.stream_id);
  writer.Put(clock.next_episode);
  writer.Put(clock.draws);
  writer.Put(clock.elapsed_steps);
  writer.Put(clock.episode_return);
  writer.Put(static_cast<std::uint8_t>(clock.ended));
}

// Throws SpecError for what no clock can be.
EpisodeClock GetClock(StateReader& reader, std::uint32_t env_id) {
  EpisodeClock clock;
  // the environment's own: a state may come from another one
  clock.env_id = env_id;
  clock.seed = reader.Get<std::uint64_t>();
  clock.stream_id = reader.Get<std::uint32_t>();
  clock.next_episode = reader.Get<std::uint32_t>();
  clock.draws = reader.Get<std::uint32_t>();
  clock.elapsed_steps = reader.Get<std::int32_t>();
  clock.episode_return = reader.Get<double>();
  const auto ended = reader.Get<std::uint8_t>();
  // a clock that has begun counts the next episode, which is 1 at least
  if (clock.elapsed_steps < 0 || clock.next_episode == 0 || ended > 1) {
    throw SpecError("has no episode that could be");
  }
  clock.ended = ended != 0;
  return clock;
}

}  // namespace

std::vector<std::uint8_t> CpuPool::SaveState(std::int32_t env) {
  const auto lock = LockOpen(send_mutex_);
  if (InFlight(env)) {
    throw ProtocolError(Describe(env) + " is in flight; call recv before you save its state");
  }
  if (!started_[env]) {
    throw ProtocolError(Describe(env) + " was never reset and has no state to save");
  }
  return SaveIdle(env);
}

Frame CpuPool::Render(std::int32_t env) {
  const auto lock = LockOpen(send_mutex_);
  if (InFlight(env)) {
    throw ProtocolError(Describe(env) + " is in flight; call recv before you render it");
  }
  if (!started_[env]) {
    throw ProtocolError(Describe(env) + " was never reset and shows nothing: call reset first");
  }
  return envs_->Render(env);
}

// Called with send_mutex_ held, like the functions below.
std::vector<std::uint8_t> CpuPool::SaveIdle(std::int32_t env) const {
  std::vector<std::uint8_t> state;
  StateWriter writer(state);
  PutClock(writer, envs_->clock(env));
  envs_->SaveState(env, state);
  return state;
}

CpuPool::Before CpuPool::SaveToPutBack(std::int32_t env) const {
  Before before{envs_->clock(env), {}};
  try {
    envs_->SaveState(env, before.state);
  } catch (const EngineError&) {
    // no engine yet: only its clock is put back
    before.state.clear();
  }
  return before;
}

// An engine that failed may refuse what it was, and is to begin an episode next.
void CpuPool::PutBack(std::int32_t env, const Before& before) {
  envs_->clock(env) = before.clock;
  if (before.state.empty()) return;
  try {
    envs_->LoadState(env, before.state);
  } catch (const EngineError&) {
  }
}

void CpuPool::LoadIdle(std::int32_t env, std::span<const std::uint8_t> state) {
  StateReader reader(state);
  EpisodeClock& clock = envs_->clock(env);
  // the clock last: where the engine refuses the state, it stays
  const EpisodeClock loaded = GetClock(reader, clock.env_id);
  envs_->LoadState(env, reader.rest());
  clock = loaded;
}

void CpuPool::CheckLoadable(std::span<const std::int32_t> envs) const {
  std::vector<std::uint8_t> listed(options_.num_envs, 0);
  for (const std::int32_t env : envs) {
    if (InFlight(env)) {
      throw ProtocolError(Describe(env) + " is in flight; call recv before you set its state");
    }
    // loaded twice, a failure could not put the first back
    if (listed[env]) throw ProtocolError(Describe(env) + " is listed twice");
    listed[env] = 1;
  }
}

void CpuPool::LoadStates(std::span<const std::int32_t> envs,
                         std::span<const std::span<const std::uint8_t>> states) {
  const auto lock = LockOpen(send_mutex_);
  CheckLoadable(envs);
  std::size_t at = 0;
  std::vector<Before> before;
  try {
    for (; at < envs.size(); ++at) {
      StateReader reader(states[at]);
      // a first pass changes nothing: it finds all that can be found without an engine
      GetClock(reader, 0);
      envs_->CheckState(envs[at], reader.rest());
    }
    // an engine may yet refuse a state: then those before it are put back
    for (at = 0; at < envs.size(); ++at) {
      before.push_back(SaveToPutBack(envs[at]));
      LoadIdle(envs[at], states[at]);
    }
  } catch (const std::exception& error) {
    for (std::size_t i = 0; i < before.size(); ++i) PutBack(envs[i], before[i]);
    throw SpecError("state " + std::to_string(at) + " for " + Describe(envs[at]) + ": " +
                    error.what());
  }
  // a loaded environment is in the middle of an episode, and needs no reset
  for (const std::int32_t env : envs) started_[env] = 1;
  all_started_ = std::find(started_.begin(), started_.end(), 0) == started_.end();
}

}  // namespace rollouts
