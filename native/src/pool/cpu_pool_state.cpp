// SPDX-License-Identifier: Apache-2.0
// Saving and loading environments of a CpuPool; cpu_pool_idle.cpp has the other calls for
// environments at rest.
#include "rollouts/pool/cpu_pool.h"
#include "rollouts/support/saved_clock.h"
#include "rollouts/support/errors.h"
#include "rollouts/support/state.h"

namespace rollouts {
std::vector<std::uint8_t> CpuPool::SaveState(std::int32_t env) {
  const OpenLock lock(*this, send_mutex_);
  ledger_.CheckIdle(env, "save its state");
  ledger_.CheckStarted(env, " and has no state to save");
  return SaveIdle(env);
}

std::span<const std::uint8_t> CpuPool::EnvInside(std::span<const std::uint8_t> state) {
  StateReader reader(state);
  GetClock(reader, 0);
  return reader.rest();
}

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
    // there is no engine yet, so only the clock is put back
    before.state.clear();
  }
  return before;
}

// Puts back a former state. An engine that failed may refuse it; the environment then begins an
// episode next.
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
  // the clock last, so that it stays unchanged where the engine refuses the state
  const EpisodeClock loaded = GetClock(reader, clock.env_id);
  envs_->LoadState(env, reader.rest());
  clock = loaded;
}

void CpuPool::LoadStates(std::span<const std::int32_t> envs,
                         std::span<const std::span<const std::uint8_t>> states) {
  const OpenLock lock(*this, send_mutex_);
  ledger_.CheckLoad(envs);
  std::size_t at = 0;
  std::vector<Before> before;
  try {
    for (; at < envs.size(); ++at) {
      StateReader reader(states[at]);
      // the first pass changes nothing: it finds all mistakes that can be found without an engine
      GetClock(reader, 0);
      envs_->CheckState(envs[at], reader.rest());
    }
    // an engine may still refuse a state: the environments before it are then put back
    for (at = 0; at < envs.size(); ++at) {
      before.push_back(SaveToPutBack(envs[at]));
      LoadIdle(envs[at], states[at]);
    }
  } catch (const std::exception& error) {
    for (std::size_t i = 0; i < before.size(); ++i) PutBack(envs[i], before[i]);
    throw SpecError("state " + std::to_string(at) + " for " + ledger_.Describe(envs[at]) + ": " +
                    error.what());
  }
  // a loaded environment may be stepped without a reset
  ledger_.MarkStarted(envs);
}

}  // namespace rollouts
