// SPDX-License-Identifier: Apache-2.0
// pool/scheduler.h and pool/cpu_pool.h: tasks that all threads do to all environments, once.
#include <algorithm>
#include <atomic>
#include <latch>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "rollouts/pool/scheduler.h"
#include "rollouts/support/errors.h"
#include "units.h"
#include "units_counting.h"

namespace rollouts {
namespace {

using units::Contains;
using units::MakeCounting;
using units::MessageOf;

// Nothing is stepped here: tasks come in its place.
struct NoSteps final : ChunkRunner {
  void MakeEnvs(EnvRange envs) override { made.fetch_add(envs.count); }
  void RunChunk(const Chunk&) override { chunks.fetch_add(1); }
  std::atomic<std::int32_t> made{0}, chunks{0};
};

// A scheduler with its threads at work.
struct Running {
  Running(std::int32_t num_envs, std::int32_t num_threads, std::int32_t step_cost_ns = 5'000)
      : scheduler(runner, {.num_envs = num_envs,
                           .num_threads = num_threads,
                           .synchronous = true,
                           .step_cost_ns = step_cost_ns,
                           .pin_cpus = {}}) {
    scheduler.Start();
  }
  ~Running() {
    scheduler.Stop();
    scheduler.Join();
  }
  NoSteps runner;
  Scheduler scheduler;
};

// The ranges that a task was called with, and their participants.
struct Calls {
  void operator()(std::int32_t participant, EnvRange envs) {
    const std::lock_guard lock(mutex);
    all.emplace_back(participant, envs);
    for (std::int32_t i = 0; i < envs.count; ++i) seen.insert(envs.first + i);
  }
  // Each environment exactly once, by participants that there are, in chunks of so many at most.
  void Check(std::int32_t num_envs, std::int32_t num_threads, std::int32_t chunk) {
    CHECK_EQ(seen.size(), static_cast<std::size_t>(num_envs));
    CHECK_EQ(*seen.begin(), 0);
    CHECK_EQ(*seen.rbegin(), num_envs - 1);
    CHECK_EQ((std::set<std::int32_t>(seen.begin(), seen.end()).size()), seen.size());
    for (const auto& [participant, envs] : all) {
      CHECK(participant >= 0 && participant < num_threads);
      CHECK(envs.count >= 1 && envs.count <= chunk);
    }
  }
  std::mutex mutex;
  std::vector<std::pair<std::int32_t, EnvRange>> all;
  std::multiset<std::int32_t> seen;
};

TEST(Scheduler, ATaskReachesEveryEnvironmentOnce) {
  for (const std::int32_t threads : {1, 2, 4}) {
    for (const std::int32_t num_envs : {4, 63, 64, 257}) {
      Running running(num_envs, threads, num_envs == 257 ? 100 : 5'000);
      for (const std::int32_t chunk : {1, 16, 1000}) {
        Calls calls;
        running.scheduler.ForAllEnvs(std::ref(calls), chunk, /*alone=*/false, [] {});
        calls.Check(num_envs, threads, threads == 1 ? num_envs : chunk);
      }
      CHECK_EQ(running.runner.chunks.load(), 0);
      CHECK_EQ(running.runner.made.load(), num_envs);
    }
  }
}

TEST(Scheduler, OneChunkBelongsToOneRange) {
  // two threads have four environments each: no chunk has those of both
  Running running(8, 2);
  Calls calls;
  running.scheduler.ForAllEnvs(std::ref(calls), 3, false, [] {});
  calls.Check(8, 2, 3);
  for (const auto& [participant, envs] : calls.all) {
    CHECK_EQ(envs.first / 4, (envs.first + envs.count - 1) / 4);
  }
}

TEST(Scheduler, ACheapTaskIsTheCallersAlone) {
  Running running(100, 3);
  Calls calls;
  const std::thread::id caller = std::this_thread::get_id();
  bool is_caller = false;
  running.scheduler.ForAllEnvs(
      [&](std::int32_t participant, EnvRange envs) {
        is_caller = std::this_thread::get_id() == caller;
        calls(participant, envs);
      },
      8, /*alone=*/true, [] { throw units::Failure("polled with nobody to wait for"); });
  CHECK(is_caller);
  CHECK_EQ(calls.all.size(), std::size_t{1});
  CHECK_EQ(calls.all[0].first, 0);
  calls.Check(100, 1, 100);
}

TEST(Scheduler, TheCallerPollsWhileOthersWork) {
  Running running(2, 2);
  const std::thread::id caller = std::this_thread::get_id();
  std::latch other_works(1), polled(1);
  std::atomic<int> polls{0}, others{0};
  running.scheduler.ForAllEnvs(
      [&](std::int32_t participant, EnvRange) {
        if (participant == 0) {
          // the second environment is the other's now
          other_works.wait();
          return;
        }
        others.fetch_add(1);
        other_works.count_down();
        polled.wait();
      },
      1, false,
      [&] {
        if (std::this_thread::get_id() == caller && polls.fetch_add(1) == 0) polled.count_down();
      });
  CHECK_EQ(others.load(), 1);
  CHECK(polls.load() >= 1);
}

TEST(Scheduler, RowsAreSharedAndOneThatIsWrongIsTold) {
  constexpr std::int32_t kRows = 9000;  // enough to be worth sharing
  Running running(kRows, 3, 1);
  for (const std::int64_t wrong : {-1, 0, 4500, 8999}) {
    std::vector<std::atomic<int>> seen(kRows);
    const bool good = running.scheduler.ForAllRows([&](std::int64_t first, std::int64_t count) {
      for (std::int64_t i = first; i < first + count; ++i) seen[static_cast<std::size_t>(i)].fetch_add(1);
      return wrong < first || wrong >= first + count;
    });
    CHECK_EQ(good, wrong == -1);
    CHECK(std::all_of(seen.begin(), seen.end(), [](const auto& n) { return n.load() == 1; }));
  }
}

TEST(Scheduler, FewRowsAreOneCallOfTheCaller) {
  Running running(100, 3);
  int calls = 0;
  CHECK(!running.scheduler.ForAllRows([&](std::int64_t first, std::int64_t count) {
    ++calls;
    return first != 0 || count != 100;
  }));
  CHECK_EQ(calls, 1);
}

TEST(Scheduler, RoundsGoOnAfterATask) {
  Running running(64, 3);
  Calls calls;
  running.scheduler.ForAllEnvs(std::ref(calls), 5, false, [] {});
  running.scheduler.PushAll();
  // 64 claims of one: an engine's step is worth its own
  running.scheduler.WorkUntil(units::Later(), [&] { return running.runner.chunks.load() == 64; });
  while (running.runner.chunks.load() < 64) std::this_thread::yield();
  CHECK_EQ(calls.seen.size(), std::size_t{64});
}

// Sizes of chunks, which the caller of Recv alone claims: no thread is started.
struct Sizes final : ChunkRunner {
  void MakeEnvs(EnvRange) override {}
  void RunChunk(const Chunk& chunk) override { all.push_back(chunk.envs.size()); }
  std::vector<std::size_t> all;
};

TEST(Scheduler, WhatOtherThreadsStepMeanwhileMakesNoChunkSmaller) {
  Sizes sizes;
  Scheduler scheduler(sizes, {.num_envs = 16,
                              .num_threads = 2,
                              .synchronous = false,
                              .step_cost_ns = 8'000,
                              .together = 8,
                              .pin_cpus = {}});
  const auto half = scheduler.all_envs().first(8);
  const auto work = [&](std::int64_t pending) {
    scheduler.Push(half, pending);
    scheduler.WorkUntil(units::Later(), [] { return false; });
  };
  // alone in flight, they are for both threads; beside eight others, for the one that is free
  work(0);
  CHECK((sizes.all == std::vector<std::size_t>{4, 4}));
  work(8);
  CHECK((sizes.all == std::vector<std::size_t>{4, 4, 8}));
}

// -- the pool's calls --------------------------------------------------------------------------

CpuPool::Sharing Alone() { return {.chunk = 1, .alone = true, .poll = {}}; }

void Reset(CpuPool& pool) {
  pool.SendReset(nullptr);
  pool.Release(pool.Recv(units::Later()).buffer.get());
}

TEST(CpuPool, ATaskGetsCommandsAndActionsOfTheWholePool) {
  const auto pool = MakeCounting(6, 1);
  Reset(*pool);
  int calls = 0;
  pool->ForAllEnvs(
      [&](EnvBatch& envs, const Work& work, std::uint8_t* actions, EnvRange range) {
        ++calls;
        CHECK_EQ(range.first, 0);
        CHECK_EQ(range.count, 6);
        CHECK_EQ(work.action_bytes, pool->action_bytes());
        CHECK(actions == pool->ActionRow(0) && work.actions == actions);
        for (std::int32_t env = 0; env < 6; ++env) {
          // after a reset they would be told to begin
          CHECK(work.commands[env] == Command::kStep);
          CHECK_EQ(envs.clock(env).env_id, 1000u + static_cast<std::uint32_t>(env));
        }
        CHECK_EQ(pool->num_in_flight(), 6);
        return std::int64_t{41};
      },
      Alone());
  CHECK_EQ(calls, 1);
  CHECK_EQ(pool->num_in_flight(), 0);
  CHECK_EQ(pool->stats().env_steps, 41);
}

TEST(CpuPool, ATaskNeedsEnvironmentsAtRest) {
  const auto pool = MakeCounting(3, 1);
  int calls = 0;
  const auto run = [&] {
    pool->ForAllEnvs([&](EnvBatch&, const Work&, std::uint8_t*, EnvRange) {
      ++calls;
      return std::int64_t{0};
    }, Alone());
  };
  CHECK(Contains(MessageOf<ProtocolError>(run), "env_id 1000 was never reset"));
  pool->SendReset(nullptr);
  CHECK(Contains(MessageOf<ProtocolError>(run), "was sent already and not received since"));
  CHECK_EQ(calls, 0);
  pool->Release(pool->Recv(units::Later()).buffer.get());
  run();
  CHECK_EQ(calls, 1);
  pool->Close();
  MessageOf<ClosedError>(run);
  CHECK_EQ(calls, 1);
}

TEST(CpuPool, ATaskNeedsASynchronousPool) {
  PoolOptions options;
  options.batch_size = 2;
  const auto pool = MakeCounting(4, 1, {}, options);
  Reset(*pool);
  CHECK_EQ(MessageOf<ProtocolError>([&] { pool->ForAllEnvs({}, Alone()); }),
           "environments are taken through many steps at once only in a pool with "
           "batch_size == num_envs");
}

TEST(CpuPool, AFailureThatATaskNotesIsThrownOnce) {
  for (const OnEnvError mode : {OnEnvError::kRaise, OnEnvError::kReset}) {
    const auto pool = MakeCounting(3, 2, {}, units::InSameStep(mode));
    Reset(*pool);
    const auto run = [&](bool fails) {
      pool->ForAllEnvs([&, fails](EnvBatch&, const Work&, std::uint8_t*, EnvRange range) {
        if (fails && range.first == 0) pool->AddFailure(0, "the engine is gone");
        return std::int64_t{0};
      }, {.chunk = 1, .alone = false, .poll = [] {}});
    };
    if (mode == OnEnvError::kRaise) {
      const std::string said = MessageOf<EnvError>([&] { run(true); });
      CHECK(Contains(said, "the engine is gone"));
      CHECK(Contains(said, "1000"));
    } else {
      run(true);
    }
    CHECK_EQ(pool->num_in_flight(), 0);
    // forgotten: no later call says it again
    run(false);
    Reset(*pool);
  }
}

TEST(CpuPool, APoolThatIsClosedMeanwhileSaysSoWhenTheTaskIsOver) {
  const auto pool = MakeCounting(3, 1);
  Reset(*pool);
  std::thread closer;
  bool saw_it = false;
  const std::string said = MessageOf<ClosedError>([&] {
    pool->ForAllEnvs([&](EnvBatch&, const Work&, std::uint8_t*, EnvRange) {
      closer = std::thread([&] { pool->Close(); });
      while (!pool->closed()) std::this_thread::yield();
      saw_it = true;
      return std::int64_t{0};
    }, Alone());
  });
  closer.join();
  CHECK(saw_it);
  CHECK_EQ(said, "the pool was closed while environments were stepped");
}

}  // namespace
}  // namespace rollouts
