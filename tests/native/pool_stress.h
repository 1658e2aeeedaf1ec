// SPDX-License-Identifier: Apache-2.0
// What the scenarios of pool_stress.cpp, pool_stress_rounds.cpp and pool_stress_threads.cpp share: environments
// that wait or fail on demand, and the pool's calls as Python makes them.
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

#include "rollouts/envs/classic/cart_pole.h"
#include "rollouts/pool/cpu_pool.h"
#include "rollouts/pool/heavy_env_batch.h"

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

// A heavy environment whose steps wait while the gate is shut, and fail on demand.
struct GateEnv {
  struct Config {
    bool throws = false;
  };
  using Action = std::int32_t;
  using Obs = float;
  static inline std::atomic<bool> open{true};

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("throws", config.throws);
  }
  static EnvSpec MakeSpec(const Config&) {
    EnvSpec spec = CartPole::kSpec;
    spec.step_cost_ns = 100'000;
    return spec;
  }
  explicit GateEnv(const Config& config) : config_(config) {}
  void Reset(Rng& rng, bool) {
    if (config_.throws && rng.Below(8) == 0) throw std::runtime_error("reset broke");
    value_ = 0;
  }
  StepResult Step(const Action*, Rng& rng) {
    open.wait(false);
    if (config_.throws && rng.Below(8) == 0) throw std::runtime_error("step broke");
    if (config_.throws && rng.Below(8) == 0) throw 7;  // not a std::exception
    ++value_;
    return StepResult::Of(1, rng.Below(10) == 0);
  }
  void Observe(Obs* obs) const {
    for (int i = 0; i < 4; ++i) obs[i] = value_;
  }
  void WriteInfo(double*) const {}

 private:
  const Config config_;
  float value_ = 0;
};

// A heavy environment whose steps return when two of them are under way at once.
struct MeetingEnv : GateEnv {
  static inline std::atomic<int> inside{0};
  static inline std::atomic<int> meetings{0};

  using GateEnv::GateEnv;
  StepResult Step(const Action*, Rng&) {
    const auto deadline = Clock::now() + std::chrono::seconds(300);
    if (inside.fetch_add(1) + 1 == 2) meetings.fetch_add(1);
    while (meetings.load() == 0 && Clock::now() < deadline) CpuRelax();
    inside.fetch_sub(1);
    return StepResult::Of(1, false);
  }
};

// As GateEnv, but only steps with an odd action wait at the gate.
struct SlowOddEnv : GateEnv {
  using GateEnv::GateEnv;
  StepResult Step(const Action* action, Rng& rng) {
    if (*action % 2) return GateEnv::Step(action, rng);
    return StepResult::Of(1, false);
  }
};

// An engine that is refused for the fifth environment.
struct RefusedEnv : GateEnv {
  static inline std::atomic<int> made{0};

  explicit RefusedEnv(const Config& config) : GateEnv(config) {
    if (made.fetch_add(1) == 4) throw EngineError("refused");
  }
};

inline void SetGate(bool open) {
  GateEnv::open.store(open);
  GateEnv::open.notify_all();
}

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

inline std::unique_ptr<CpuPool> MakeCartPoles(const PoolOptions& options) {
  return std::make_unique<CpuPool>(
      std::make_unique<LightEnvBatch<CartPole>>(std::vector{CartPole::Config{}}, options.num_envs), options);
}

inline std::unique_ptr<CpuPool> MakeGates(const PoolOptions& options, bool throws = false) {
  return std::make_unique<CpuPool>(
      HeavyEnvBatch::Of<GateEnv>({throws}, options.num_envs), options);
}

// CheckSend, filling the rows and Send belong together, and SendReset may not come
// between; Python's callers have the GIL for it.
inline std::mutex api_mutex;

inline void SendReset(CpuPool& pool) {
  const std::lock_guard lock(api_mutex);
  pool.SendReset(nullptr);
}

inline void Send(CpuPool& pool, const std::vector<std::int32_t>& envs) {
  const std::lock_guard lock(api_mutex);
  pool.CheckSend(envs);
  for (const std::int32_t env : envs) {
    const std::int32_t action = env % 2;
    std::memcpy(pool.ActionRow(env), &action, sizeof(action));
  }
  pool.Send(envs);
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

// The scenarios of pool_stress_rounds.cpp and of pool_stress_threads.cpp.
Scenarios RoundScenarios();
Scenarios ThreadScenarios();

}  // namespace rollouts
