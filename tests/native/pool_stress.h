// SPDX-License-Identifier: Apache-2.0
// Shared by pool_stress.cpp, pool_stress_rounds.cpp and pool_stress_threads.cpp: pools of
// environments that wait or fail on demand, and the pool's calls as Python makes them.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <latch>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>

#include "rollouts/pool/cpu_pool.h"

namespace rollouts {

using Clock = CpuPool::Clock;
using Received = CpuPool::Received;

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                             \
    }                                                                           \
  } while (false)

inline Clock::time_point Soon() { return Clock::now() + std::chrono::milliseconds(20); }
inline Clock::time_point Later() { return Clock::now() + std::chrono::seconds(600); }

// -- pools of pool_stress_pools.cpp: what the compiler has most work with, and needs once ------

// Steps of the environments that MakeGates and MakeSlowOdds have wait while the gate is shut.
void SetGate(bool open);

inline PoolOptions MakeOptions(std::int32_t num_envs, std::int32_t batch_size, std::int32_t threads,
                    AutoresetMode mode = AutoresetMode::kSameStep) {
  PoolOptions options;
  options.num_envs = num_envs;
  options.batch_size = batch_size;
  options.num_threads = threads;
  options.env_id_offset = 1000;
  options.seed = 3;
  options.rules = {mode, 50};
  return options;
}

std::unique_ptr<CpuPool> MakeCartPoles(const PoolOptions& options);
// Heavy environments that wait at the gate, and fail now and then where they throw.
std::unique_ptr<CpuPool> MakeGates(const PoolOptions& options, bool throws = false);
// As MakeGates, but only steps with an odd action wait.
std::unique_ptr<CpuPool> MakeSlowOdds(const PoolOptions& options);
// Steps return when two of them are under way at once, or did so before: see NumMeetings.
std::unique_ptr<CpuPool> MakeMeetings(const PoolOptions& options);
int NumMeetings();
// An engine that is refused for the fifth environment.
std::unique_ptr<CpuPool> MakeRefused(const PoolOptions& options);

inline void SendReset(CpuPool& pool) { pool.SendReset(nullptr); }

inline void Send(CpuPool& pool, std::span<const std::int32_t> envs, const BatchView* out = nullptr) {
  const auto fill = [&](std::int64_t first, std::int64_t count) {
    for (const std::int32_t env : envs.subspan(first, count)) {
      const std::int32_t action = env % 2;
      std::memcpy(pool.ActionRow(env), &action, sizeof(action));
    }
    return true;
  };
  CHECK(pool.Send(envs, fill, out));
}

inline void Send(CpuPool& pool, const std::vector<std::int32_t>& envs) {
  Send(pool, std::span<const std::int32_t>(envs));
}

inline std::vector<std::int32_t> Envs(const CpuPool& pool, const Received& received) {
  const std::int32_t* ids = received.buffer->view().env_id;
  std::vector<std::int32_t> envs(ids, ids + received.rows);
  for (std::int32_t& env : envs) env -= pool.options().env_id_offset;
  return envs;
}

// Somebody outside the pool who may look at a buffer at any time.
// Owns the buffer that owns it, as the bindings' arrays do: the pool breaks the cycle.
struct Holder final : BufferUsers {
  explicit Holder(std::shared_ptr<BatchBuffer> given) : buffer(std::move(given)) {}
  bool None() const override { return holds.load(std::memory_order_acquire) == 0; }
  std::shared_ptr<BatchBuffer> buffer;
  std::atomic<int> holds{0};
};

inline Holder& HolderOf(const std::shared_ptr<BatchBuffer>& buffer) {
  if (!buffer->users) buffer->users = std::make_unique<Holder>(buffer);
  return static_cast<Holder&>(*buffer->users);
}

// Calls `body` until the pool is closed; calls in an impossible order are allowed.
inline void UntilClosed(const std::function<void()>& body) {
  while (true) {
    try {
      body();
    } catch (const ClosedError&) {
      return;
    } catch (const ProtocolError&) {
      std::this_thread::yield();
    }
  }
}

using Scenarios = std::map<std::string, void (*)()>;

// The scenarios of pool_stress_agents.cpp, pool_stress_rounds.cpp, pool_stress_rollouts.cpp and
// pool_stress_threads.cpp.
Scenarios AgentScenarios();
Scenarios RoundScenarios();
Scenarios RolloutScenarios();
Scenarios ThreadScenarios();

}  // namespace rollouts
