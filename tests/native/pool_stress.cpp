// SPDX-License-Identifier: Apache-2.0
// Exercises CpuPool from many threads at once. test_sanitizers.py builds it with
// ThreadSanitizer and with AddressSanitizer + UndefinedBehaviorSanitizer; each
// scenario is an argument. Exit status 0: every Check held and no sanitizer spoke.
#include "pool_stress.h"

namespace rollouts {
namespace {

// Receives of any size against threads that fill buffers out of order, with drains; each
// environment's steps are counted, so that a row lost, doubled or read early shows.
void PartsOfBatchesAsync() {
  const std::int32_t num_envs = 90;
  const auto pool = MakeGates(MakeOptions(num_envs, 20, 3, AutoresetMode::kNextStep));
  std::mt19937 random(5);
  SendReset(*pool);
  std::vector<std::int32_t> length(num_envs, -1);
  for (int round = 0; round < 3000; ++round) {
    Received received;
    if (round % 50 == 49) {
      received = pool->RecvAll(Later());
      CHECK(pool->num_in_flight() == 0);
    } else {
      const std::int32_t in_flight = pool->num_in_flight();
      const std::int32_t min = 1 + static_cast<std::int32_t>(random() % in_flight);
      const std::int32_t max = min + static_cast<std::int32_t>(random() % num_envs);
      received = pool->RecvRows(Later(), {min, max});
      CHECK(received.rows >= min && received.rows <= max);
    }
    const BatchView& view = received.buffer->view();
    std::vector<std::int32_t> envs;
    for (std::int32_t i = received.first; i < received.first + received.rows; ++i) {
      const std::int32_t env = view.env_id[i] - pool->options().env_id_offset;
      const bool begins = view.episode_length[i] == 0;
      CHECK(begins || view.episode_length[i] == length[env] + 1);
      CHECK(view.ObsRow<float>(i)[0] == static_cast<float>(view.episode_length[i]));
      length[env] = view.episode_length[i];
      envs.push_back(env);
    }
    pool->Release(received.buffer.get());
    if (round % 400 == 399) {
      CHECK(pool->Drain(Later()));
      SendReset(*pool);
      std::fill(length.begin(), length.end(), -1);
    } else {
      std::shuffle(envs.begin(), envs.end(), random);
      Send(*pool, envs);
    }
  }
}

// One thread receives and hands the rows to two others, which send them again.
void AsyncSendersAndReceiver() {
  const auto pool = MakeCartPoles(MakeOptions(96, 20, 3));
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
  const auto pool = MakeCartPoles(MakeOptions(64, 16, 3));
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

void CloseWhileOthersWorkSync() { CloseWhileOthersWork(MakeOptions(32, 32, 2, AutoresetMode::kDisabled)); }
void CloseWhileOthersWorkSyncQueued() { CloseWhileOthersWork(MakeOptions(2000, 2000, 3)); }
void CloseWhileOthersWorkAsync() { CloseWhileOthersWork(MakeOptions(40, 7, 3, AutoresetMode::kNextStep)); }

// Recv waits on an environment that does not finish; Close wakes it all the same.
void CloseWakesRecv() {
  for (const std::int32_t batch_size : {4, 2}) {
    SetGate(true);
    const auto pool = MakeGates(MakeOptions(4, batch_size, 4));
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
    CHECK(pool->Drain(Clock::now() + std::chrono::seconds(300)));
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

void DrainAgainstSendsSync() { DrainAgainstSends(MakeOptions(450, 450, 2)); }
void DrainAgainstSendsSyncQueued() { DrainAgainstSends(MakeOptions(1200, 1200, 3)); }
void DrainAgainstSendsAsync() { DrainAgainstSends(MakeOptions(480, 240, 3)); }

// Failing environments are reported, truncated, and the pool goes on.
void FailuresStayWithTheirEnvironment(std::int32_t batch_size) {
  SetGate(true);
  const auto pool = MakeGates(MakeOptions(12, batch_size, 3), /*throws=*/true);
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
  const auto pool = MakeMeetings(MakeOptions(16, 16, 2));
  SendReset(*pool);
  pool->Release(pool->Recv(Later()).buffer.get());
  std::vector<std::int32_t> envs(16);
  std::iota(envs.begin(), envs.end(), 0);
  Send(*pool, envs);
  pool->Release(pool->Recv(Later()).buffer.get());
  CHECK(NumMeetings() > 0);
}

// Stats are cleared from one thread and read from another while a third steps.
void StatsAgainstSteps() {
  SetGate(true);
  const auto pool = MakeGates(MakeOptions(12, 5, 3));
  std::atomic<bool> stop{false};
  std::thread clearer([&] {
    while (!stop) pool->ResetStats();
  });
  std::thread reader([&] {
    while (!stop) CHECK(pool->stats().env_step_time.size() == 12);
  });
  SendReset(*pool);
  for (int batch = 0; batch < 400; ++batch) {
    const Received received = pool->Recv(Later());
    const auto envs = Envs(*pool, received);
    pool->Release(received.buffer.get());
    Send(*pool, envs);
  }
  CHECK(pool->Drain(Later()));
  stop = true;
  clearer.join();
  reader.join();
  pool->ResetStats();
  CHECK(pool->stats().env_steps == 0 && pool->stats().step_time.count == 0);
}

// An environment that cannot be made, on whatever thread, is the constructor's error.
void MakingFails() {
  for (const std::int32_t threads : {1, 2, 4}) {
    for (const std::int32_t batch_size : {12, 6}) {
      bool refused = false;
      try {
        MakeRefused(MakeOptions(12, batch_size, threads));
      } catch (const EngineError&) {
        refused = true;
      }
      CHECK(refused);
    }
  }
}

// Threads start, work a little and end, with work still in the queue.
void ManyPools() {
  for (int i = 0; i < 150; ++i) {
    const std::int32_t batch_size = i % 2 ? 16 : 64;
    const auto pool = MakeCartPoles(MakeOptions(64, batch_size, 1 + i % 4));
    if (i % 3) SendReset(*pool);
    if (i % 3 == 2) pool->Release(pool->Recv(Later()).buffer.get());
  }
}

}  // namespace
}  // namespace rollouts

int main(int argc, char** argv) {
  using namespace rollouts;
  Scenarios scenarios = {
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
      {"making_fails", MakingFails},
      {"many_pools", ManyPools},
      {"parts_of_batches_async", PartsOfBatchesAsync},
      {"stats_against_steps", StatsAgainstSteps},
  };
  scenarios.merge(AgentScenarios());
  scenarios.merge(RoundScenarios());
  scenarios.merge(RolloutScenarios());
  scenarios.merge(ThreadScenarios());
  const auto found = argc == 2 ? scenarios.find(argv[1]) : scenarios.end();
  if (found == scenarios.end()) {
    for (const auto& [name, run] : scenarios) std::printf("%s\n", name.c_str());
    return argc == 1 ? 0 : 2;
  }
  found->second();
  return 0;
}
