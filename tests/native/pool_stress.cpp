// SPDX-License-Identifier: Apache-2.0
// Exercises CpuPool from many threads at once. test_sanitizers.py builds it with
// ThreadSanitizer and with AddressSanitizer + UndefinedBehaviorSanitizer; each
// scenario is an argument. Exit status 0: every Check held and no sanitizer spoke.
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

namespace rollouts {
namespace {

using Clock = CpuPool::Clock;
using Received = CpuPool::Received;

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                             \
    }                                                                           \
  } while (false)

Clock::time_point Soon() { return Clock::now() + std::chrono::milliseconds(20); }
Clock::time_point Later() { return Clock::now() + std::chrono::seconds(60); }

// A heavy environment whose steps wait while the gate is shut, and fail on demand.
struct GateEnv {
  struct Config {
    bool throws = false;
  };
  using Action = std::int32_t;
  using Obs = float;
  static inline std::atomic<bool> open{true};

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
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    if (inside.fetch_add(1) + 1 == 2) meetings.fetch_add(1);
    while (meetings.load() == 0 && Clock::now() < deadline) CpuRelax();
    inside.fetch_sub(1);
    return StepResult::Of(1, false);
  }
};

void SetGate(bool open) {
  GateEnv::open.store(open);
  GateEnv::open.notify_all();
}

PoolOptions Options(std::int32_t num_envs, std::int32_t batch_size, std::int32_t threads,
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

std::unique_ptr<CpuPool> MakeCartPoles(const PoolOptions& options) {
  return std::make_unique<CpuPool>(
      std::make_unique<LightEnvBatch<CartPole>>(CartPole::Config{}, options.num_envs), options);
}

std::unique_ptr<CpuPool> MakeGates(const PoolOptions& options, bool throws = false) {
  return std::make_unique<CpuPool>(
      std::make_unique<HeavyEnvBatch<GateEnv>>(GateEnv::Config{throws}, options.num_envs), options);
}

// CheckSend, filling the rows and Send belong together, and SendReset may not come
// between; Python's callers have the GIL for it.
std::mutex api_mutex;

void SendReset(CpuPool& pool) {
  const std::lock_guard lock(api_mutex);
  pool.SendReset(nullptr);
}

void Send(CpuPool& pool, const std::vector<std::int32_t>& envs) {
  const std::lock_guard lock(api_mutex);
  pool.CheckSend(envs);
  for (const std::int32_t env : envs) {
    const std::int32_t action = env % 2;
    std::memcpy(pool.ActionRow(env), &action, sizeof(action));
  }
  pool.Send(envs);
}

std::vector<std::int32_t> Envs(const CpuPool& pool, const Received& received) {
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

Holder& HolderOf(const std::shared_ptr<BatchBuffer>& buffer) {
  if (!buffer->users) buffer->users = std::make_unique<Holder>(buffer);
  return static_cast<Holder&>(*buffer->users);
}

// Rounds of random subsets, cheap ones (run by Recv) and dear ones (queued), in one pool.
void SyncRounds() {
  const auto pool = MakeCartPoles(Options(1500, 1500, 3));
  std::mt19937 random(1);
  SendReset(*pool);
  pool->Release(pool->Recv(Later()).buffer.get());
  std::vector<std::int32_t> order(1500);
  for (std::int32_t i = 0; i < 1500; ++i) order[i] = i;
  for (int round = 0; round < 150; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::int32_t> sent;
    const int parts = 1 + static_cast<int>(random() % 3);
    for (int part = 0; part < parts; ++part) {
      const std::size_t size = 1 + random() % (part == 0 && random() % 2 ? 900 : 100);
      const std::vector<std::int32_t> some(order.begin() + sent.size(),
                                           order.begin() + sent.size() + size);
      Send(*pool, some);
      sent.insert(sent.end(), some.begin(), some.end());
    }
    if (round % 10 == 9) {
      CHECK(pool->Drain(Later()));
      continue;
    }
    const Received received = pool->Recv(Later());
    CHECK(Envs(*pool, received) == sent);
    pool->Release(received.buffer.get());
  }
}

// One thread receives and hands the rows to two others, which send them again.
void AsyncSendersAndReceiver() {
  const auto pool = MakeCartPoles(Options(96, 20, 3));
  SendReset(*pool);
  std::mutex mutex;
  std::deque<std::vector<std::int32_t>> idle;  // guarded by mutex
  std::atomic<bool> stop{false};
  const auto sender = [&] {
    while (!stop) {
      std::vector<std::int32_t> envs;
      {
        const std::lock_guard lock(mutex);
        if (!idle.empty()) {
          envs = std::move(idle.front());
          idle.pop_front();
        }
      }
      if (envs.empty()) {
        std::this_thread::yield();
      } else {
        Send(*pool, envs);
      }
    }
  };
  std::thread first(sender), second(sender);
  std::vector<int> steps(96);
  for (int batch = 0; batch < 600;) {
    try {
      const Received received = pool->Recv(Later());
      const auto envs = Envs(*pool, received);
      for (const std::int32_t env : envs) ++steps[env];
      pool->Release(received.buffer.get());
      const std::lock_guard lock(mutex);
      idle.push_back(envs);
      ++batch;
    } catch (const ProtocolError&) {
      std::this_thread::yield();  // the senders hold too many; it would never return
    }
  }
  stop = true;
  first.join();
  second.join();
  for (const int count : steps) CHECK(count > 0);
}

// Buffers somebody holds are not written: their contents stay what they were.
void HeldBuffersDoNotChange() {
  const auto pool = MakeCartPoles(Options(64, 16, 3));
  std::mt19937 random(2);
  SendReset(*pool);
  struct Held {
    std::shared_ptr<BatchBuffer> buffer;
    std::vector<std::uint8_t> copy;
  };
  std::vector<Held> held;
  for (int batch = 0; batch < 800; ++batch) {
    const Received received = pool->Recv(Later());
    const auto envs = Envs(*pool, received);
    BatchBuffer& buffer = *received.buffer;
    HolderOf(received.buffer).holds.fetch_add(1);
    const std::uint8_t* obs = buffer.view().obs;
    held.push_back({received.buffer, {obs, obs + 16 * buffer.view().obs_bytes}});
    pool->Release(&buffer);
    Send(*pool, envs);
    if (held.size() > 12 || random() % 2) {
      const std::size_t at = random() % held.size();
      CHECK(std::equal(held[at].copy.begin(), held[at].copy.end(), held[at].buffer->view().obs));
      HolderOf(held[at].buffer).holds.fetch_sub(1, std::memory_order_release);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  CHECK(pool->buffer_bytes() < 40 * held[0].buffer->bytes());
}

// Calls `body` until the pool is closed; calls in an impossible order are allowed.
void UntilClosed(const std::function<void()>& body) {
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

// Close comes while other threads use every entry point, in and out of waits.
void CloseWhileOthersWork(const PoolOptions& options) {
  for (int repeat = 0; repeat < 120; ++repeat) {
    const auto pool = MakeCartPoles(options);
    SendReset(*pool);
    std::latch ready(6);
    const auto run = [&](std::function<void()> body) {
      return std::thread([&ready, body = std::move(body)] {
        ready.arrive_and_wait();
        UntilClosed(body);
      });
    };
    const auto receive = [&] {
      const Received received = pool->Recv(Soon());
      if (!received.buffer) return;
      const auto envs = Envs(*pool, received);
      HolderOf(received.buffer);
      pool->Release(received.buffer.get());
      Send(*pool, envs);
    };
    std::vector<std::thread> threads;
    threads.push_back(run(receive));
    threads.push_back(run(receive));
    threads.push_back(run([&] { pool->Drain(Soon()); }));
    threads.push_back(run([&] { SendReset(*pool); }));
    threads.push_back(run([&] { pool->Seed(repeat % 32, 1); }));
    ready.arrive_and_wait();
    for (int i = 0; i < repeat * 20; ++i) CpuRelax();
    pool->Close();
    pool->Close();
    for (std::thread& thread : threads) thread.join();
  }
}

void CloseWhileOthersWorkSync() { CloseWhileOthersWork(Options(32, 32, 2, AutoresetMode::kDisabled)); }
void CloseWhileOthersWorkSyncQueued() { CloseWhileOthersWork(Options(2000, 2000, 3)); }
void CloseWhileOthersWorkAsync() { CloseWhileOthersWork(Options(40, 7, 3, AutoresetMode::kNextStep)); }

// Recv waits on an environment that does not finish; Close wakes it all the same.
void CloseWakesRecv() {
  for (const std::int32_t batch_size : {4, 2}) {
    SetGate(true);
    const auto pool = MakeGates(Options(4, batch_size, 4));
    SendReset(*pool);
    for (int i = 0; i < 4 / batch_size; ++i) pool->Release(pool->Recv(Later()).buffer.get());
    SetGate(false);
    Send(*pool, {0, 1, 2, 3});
    if (batch_size == 4) {
      // in synchronous mode Recv itself would step, so a deadline cannot be kept: open later
      std::thread opener([] { SetGate(true); });
      const Received received = pool->Recv(Later());
      opener.join();
      CHECK(received.rows == 4);
      continue;
    }
    CHECK(pool->Recv(Clock::now()).buffer == nullptr);
    std::latch waiting(1);
    std::thread receiver([&] {
      waiting.count_down();
      bool closed = false;
      try {
        pool->Recv(Later());
      } catch (const ClosedError&) {
        closed = true;
      }
      CHECK(closed);
      SetGate(true);  // lets the workers end, which Close joins
    });
    waiting.wait();
    pool->Close();
    receiver.join();
  }
}

// Resets (drain + send) from one thread against steps from another: steps may be
// refused or discarded, but no environment is ever lost or run twice at a time.
void DrainAgainstSends(const PoolOptions& options) {
  const auto pool = MakeCartPoles(options);
  SendReset(*pool);
  std::atomic<bool> stop{false};
  std::thread stepper([&] {
    std::vector<std::int32_t> env(1);
    while (!stop) {
      env[0] = (env[0] + 1) % options.batch_size;
      try {
        Send(*pool, env);
      } catch (const ProtocolError&) {
        std::this_thread::yield();
      }
    }
  });
  for (int round = 0; round < 2000; ++round) {
    CHECK(pool->Drain(Clock::now() + std::chrono::seconds(10)));
    try {
      SendReset(*pool);
    } catch (const ProtocolError&) {
    }
  }
  stop = true;
  stepper.join();
  CHECK(pool->Drain(Later()));
  CHECK(pool->num_in_flight() == 0);
  SendReset(*pool);
  const Received received = pool->Recv(Later());
  CHECK(received.rows == options.batch_size);
}

void DrainAgainstSendsSync() { DrainAgainstSends(Options(450, 450, 2)); }
void DrainAgainstSendsSyncQueued() { DrainAgainstSends(Options(1200, 1200, 3)); }
void DrainAgainstSendsAsync() { DrainAgainstSends(Options(480, 240, 3)); }

// Failing environments are reported, truncated, and the pool goes on.
void FailuresStayWithTheirEnvironment(std::int32_t batch_size) {
  SetGate(true);
  const auto pool = MakeGates(Options(12, batch_size, 3), /*throws=*/true);
  SendReset(*pool);
  int failures = 0;
  for (int batch = 0; batch < 400;) {
    try {
      const Received received = pool->Recv(Later());
      const auto envs = Envs(*pool, received);
      CHECK(static_cast<std::int32_t>(envs.size()) == batch_size);
      pool->Release(received.buffer.get());
      Send(*pool, envs);
      ++batch;
    } catch (const EnvError&) {
      ++failures;
    }
  }
  CHECK(failures > 0);
}

void FailuresSync() { FailuresStayWithTheirEnvironment(12); }
void FailuresAsync() { FailuresStayWithTheirEnvironment(5); }

// A chunk of several environments would leave threads without work.
void EnginesStepInParallel() {
  const PoolOptions options = Options(16, 16, 2);
  CpuPool pool(std::make_unique<HeavyEnvBatch<MeetingEnv>>(MeetingEnv::Config{}, 16), options);
  SendReset(pool);
  pool.Release(pool.Recv(Later()).buffer.get());
  std::vector<std::int32_t> envs(16);
  std::iota(envs.begin(), envs.end(), 0);
  Send(pool, envs);
  pool.Release(pool.Recv(Later()).buffer.get());
  CHECK(MeetingEnv::meetings.load() > 0);
}

// Threads start, work a little and end, with work still in the queue.
void ManyPools() {
  for (int i = 0; i < 150; ++i) {
    const std::int32_t batch_size = i % 2 ? 16 : 64;
    const auto pool = MakeCartPoles(Options(64, batch_size, 1 + i % 4));
    if (i % 3) SendReset(*pool);
    if (i % 3 == 2) pool->Release(pool->Recv(Later()).buffer.get());
  }
}

}  // namespace
}  // namespace rollouts

int main(int argc, char** argv) {
  using namespace rollouts;
  const std::map<std::string, void (*)()> scenarios = {
      {"sync_rounds", SyncRounds},
      {"async_senders_and_receiver", AsyncSendersAndReceiver},
      {"held_buffers_do_not_change", HeldBuffersDoNotChange},
      {"close_while_others_work_sync", CloseWhileOthersWorkSync},
      {"close_while_others_work_sync_queued", CloseWhileOthersWorkSyncQueued},
      {"close_while_others_work_async", CloseWhileOthersWorkAsync},
      {"close_wakes_recv", CloseWakesRecv},
      {"drain_against_sends_sync", DrainAgainstSendsSync},
      {"drain_against_sends_sync_queued", DrainAgainstSendsSyncQueued},
      {"drain_against_sends_async", DrainAgainstSendsAsync},
      {"engines_step_in_parallel", EnginesStepInParallel},
      {"failures_sync", FailuresSync},
      {"failures_async", FailuresAsync},
      {"many_pools", ManyPools},
  };
  const auto found = argc == 2 ? scenarios.find(argv[1]) : scenarios.end();
  if (found == scenarios.end()) {
    for (const auto& [name, run] : scenarios) std::printf("%s\n", name.c_str());
    return argc == 1 ? 0 : 2;
  }
  found->second();
  return 0;
}
