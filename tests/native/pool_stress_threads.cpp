// SPDX-License-Identifier: Apache-2.0
// Scenarios in which several threads receive, step or close at once, and in which the
// order of service matters; pool_stress.cpp runs them.
#include "pool_stress.h"

namespace rollouts {
namespace {

// Several threads receive at once, with deadlines that pass now and then, while others
// send again and look at the counters: every batch has one receiver, and every
// environment is received as often as it was sent.
void ManyReceivers(const PoolOptions& options) {
  const auto pool = MakeCartPoles(options);
  SendReset(*pool);
  std::vector<std::atomic<std::int32_t>> at_receiver(options.num_envs);
  std::atomic<std::int64_t> batches{0}, timeouts{0};
  std::atomic<bool> stop{false};
  std::atomic<bool> whole{true};  // counters looked at so far made sense
  std::thread poller([&] {
    while (!stop) {
      const std::int32_t in_flight = pool->num_in_flight();
      if (in_flight < 0 || in_flight > options.num_envs) whole = false;
      if (pool->buffer_bytes() <= 0 || pool->closed()) whole = false;
      std::this_thread::yield();
    }
  });
  const auto receive = [&](int seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    while (batches.load() < 400) {
      const auto deadline = Clock::now() + std::chrono::microseconds(random() % 60);
      try {
        const Received received = pool->Recv(deadline);
        if (!received.buffer) {
          timeouts.fetch_add(1);
          continue;
        }
        const auto envs = Envs(*pool, received);
        for (const std::int32_t env : envs) CHECK(at_receiver[env].fetch_add(1) == 0);
        HolderOf(received.buffer);
        pool->Release(received.buffer.get());
        batches.fetch_add(1);
        for (const std::int32_t env : envs) CHECK(at_receiver[env].fetch_sub(1) == 1);
        // synchronous pools take turns: until the others have left Recv, sends are refused
        while (true) {
          try {
            Send(*pool, envs);
            break;
          } catch (const ProtocolError&) {
            std::this_thread::yield();
          }
        }
      } catch (const ProtocolError&) {
        std::this_thread::yield();  // the others hold too many; it would never return
      }
    }
  };
  std::thread first(receive, 1), second(receive, 2), third(receive, 3);
  first.join();
  second.join();
  third.join();
  stop = true;
  poller.join();
  CHECK(whole);
  CHECK(pool->Drain(Later()));
  CHECK(pool->num_in_flight() == 0);
}

void ManyReceiversSync() { ManyReceivers(MakeOptions(48, 48, 2)); }
void ManyReceiversSyncQueued() { ManyReceivers(MakeOptions(3000, 3000, 3)); }
void ManyReceiversAsync() { ManyReceivers(MakeOptions(60, 9, 3)); }

// Receivers end the episodes of some of their environments, as callers do whose rules are their
// own, and look at all of them at rest, while the pool steps the others and one more thread
// asks for their models.
void RowsAtRest(bool throws) {
  SetGate(true);
  const PoolOptions options = MakeOptions(24, 5, 3);
  const auto pool = MakeGates(options, throws);
  SendReset(*pool);
  std::atomic<int> batches{0}, begun{0}, failures{0};
  std::atomic<bool> stop{false};
  std::thread asker([&] {
    for (int env = 0; !stop; env = (env + 1) % options.num_envs) {
      try {
        pool->ModelFields(env);
      } catch (const SpecError&) {  // it has no model
      } catch (const ProtocolError&) {  // it is in flight
      }
      std::this_thread::yield();
    }
  });
  const auto receive = [&] {
    while (batches.load() < 300) {
      try {
        const Received received = pool->Recv(Soon());
        if (!received.buffer) continue;
        const auto envs = Envs(*pool, received);
        const BatchView view = received.buffer->view();
        std::vector<std::int32_t> ended, others;
        std::vector<float> seen;
        for (std::size_t row = 0; row < envs.size(); ++row) {
          if (view.terminated[row] || view.truncated[row]) continue;  // or it failed
          if (envs[row] % 3 == 0) {
            ended.push_back(envs[row]);
          } else {
            others.push_back(envs[row]);
            seen.push_back(*view.ObsRow<float>(static_cast<std::int64_t>(row)));
          }
        }
        pool->Release(received.buffer.get());
        const std::vector<double> rewards(ended.size(), 2.0);
        const std::vector<std::uint8_t> ends(ended.size(), 1);
        pool->EndSteps(ended, rewards.data(), ends.data());
        if (!ended.empty()) {
          const Received fresh = pool->ShowIdle(ended, true);
          CHECK(Envs(*pool, fresh) == ended);
          for (std::int32_t row = 0; row < fresh.rows; ++row) {
            CHECK(*fresh.buffer->view().ObsRow<float>(row) == 0);
          }
          begun.fetch_add(fresh.rows);
        }
        if (!others.empty()) {
          const Received same = pool->ShowIdle(others, false);
          for (std::int32_t row = 0; row < same.rows; ++row) {
            CHECK(*same.buffer->view().ObsRow<float>(row) == seen[static_cast<std::size_t>(row)]);
          }
        }
        Send(*pool, envs);
        batches.fetch_add(1);
      } catch (const EnvError&) {
        failures.fetch_add(1);
      } catch (const ProtocolError&) {
        std::this_thread::yield();  // the others hold too many; it would never return
      }
    }
  };
  std::thread first(receive), second(receive), third(receive);
  first.join();
  second.join();
  third.join();
  stop = true;
  asker.join();
  CHECK(begun > 0);
  CHECK((failures > 0) == throws);
}

void RowsAtRestShow() { RowsAtRest(/*throws=*/false); }
void RowsAtRestFail() { RowsAtRest(/*throws=*/true); }

// A whole step (send and recv) in two threads, the counters in a third, saved states in a
// fourth, and Close from a fifth at any moment.
void CloseWhileStepping(const PoolOptions& options) {
  for (int repeat = 0; repeat < 60; ++repeat) {
    const auto pool = MakeCartPoles(options);
    SendReset(*pool);
    pool->Release(pool->Recv(Later()).buffer.get());
    std::latch ready(5);
    const auto run = [&](std::function<void()> body) {
      return std::thread([&ready, body = std::move(body)] {
        ready.arrive_and_wait();
        UntilClosed(body);
      });
    };
    // halves of the environments, so that both threads always have some to step
    const auto step = [&](std::int32_t first) {
      std::vector<std::int32_t> envs(options.batch_size / 2);
      std::iota(envs.begin(), envs.end(), first);
      Send(*pool, envs);
      const Received received = pool->Recv(Soon());
      if (!received.buffer) return;
      // the receiver's until Release, even when Close comes in between
      for (const std::int32_t env : Envs(*pool, received)) CHECK(env >= 0 && env < options.num_envs);
      pool->Release(received.buffer.get());
    };
    std::vector<std::thread> threads;
    threads.push_back(run([&] { step(0); }));
    threads.push_back(run([&] { step(options.batch_size / 2); }));
    threads.push_back(run([&] {
      // these two never throw, not even once the pool is closed
      CHECK(pool->num_in_flight() >= 0);
      CHECK(pool->buffer_bytes() >= 0);
      if (pool->closed()) throw ClosedError("seen");
    }));
    threads.push_back(run([&] {
      const auto state = pool->SaveState(3);
      const std::vector<std::int32_t> envs{4};
      const std::vector<std::span<const std::uint8_t>> states{state};
      pool->LoadStates(envs, states);
    }));
    ready.arrive_and_wait();
    for (int i = 0; i < repeat * 40; ++i) CpuRelax();
    pool->Close();
    for (std::thread& thread : threads) thread.join();
    CHECK(pool->closed());
    CHECK(pool->buffer_bytes() == 0);
  }
}

void CloseWhileSteppingSync() { CloseWhileStepping(MakeOptions(32, 32, 2)); }
void CloseWhileSteppingSyncQueued() { CloseWhileStepping(MakeOptions(2600, 2600, 3)); }
void CloseWhileSteppingAsync() { CloseWhileStepping(MakeOptions(48, 12, 3)); }

// Two threads close at once while a third waits in Recv: all return, and both closers
// find the pool closed when they do.
void ClosersRace() {
  for (int repeat = 0; repeat < 200; ++repeat) {
    const auto pool = MakeCartPoles(MakeOptions(64, repeat % 2 ? 64 : 63, 3));
    SendReset(*pool);
    std::latch ready(3);
    const auto close = [&] {
      ready.arrive_and_wait();
      pool->Close();
      CHECK(pool->closed());
      CHECK(pool->buffer_bytes() == 0);
    };
    std::thread first(close), second(close);
    ready.arrive_and_wait();
    UntilClosed([&] {
      const Received received = pool->Recv(Soon());
      if (received.buffer) pool->Release(received.buffer.get());
    });
    first.join();
    second.join();
  }
}

// An environment that does not finish holds up neither the others nor their batches, and
// is received soon after it finishes.
void SlowEnvironmentHoldsNobodyUp() {
  SetGate(true);
  const auto pool = MakeSlowOdds(MakeOptions(6, 2, 2));
  SendReset(*pool);
  std::vector<std::int32_t> idle;
  for (int batch = 0; batch < 3; ++batch) {
    const Received received = pool->Recv(Later());
    for (const std::int32_t env : Envs(*pool, received)) idle.push_back(env);
    pool->Release(received.buffer.get());
  }
  SetGate(false);
  Send(*pool, {1});           // waits, and one of two threads with it
  Send(*pool, {0, 2, 4});
  const auto next = [&] {
    const Received received = pool->Recv(Later());
    const auto envs = Envs(*pool, received);
    pool->Release(received.buffer.get());
    return envs;
  };
  for (int batch = 0; batch < 300; ++batch) {
    const auto envs = next();
    for (const std::int32_t env : envs) CHECK(env % 2 == 0);
    Send(*pool, envs);
  }
  SetGate(true);
  const auto until = Later();
  while (true) {
    CHECK(Clock::now() < until);
    const auto envs = next();
    if (std::find(envs.begin(), envs.end(), 1) != envs.end()) break;
    Send(*pool, envs);
  }
}

// One thread serves the queue: batches come strictly in the order sent.
void OneThreadIsFirstInFirstOut() {
  SetGate(true);
  const auto pool = MakeGates(MakeOptions(11, 3, 1));
  std::mt19937 random(4);
  SendReset(*pool);
  std::deque<std::int32_t> expected(11);
  std::iota(expected.begin(), expected.end(), 0);
  for (int batch = 0; batch < 400; ++batch) {
    const Received received = pool->Recv(Later());
    auto envs = Envs(*pool, received);
    pool->Release(received.buffer.get());
    for (const std::int32_t env : envs) {
      CHECK(env == expected.front());
      expected.pop_front();
    }
    std::shuffle(envs.begin(), envs.end(), random);
    Send(*pool, envs);
    expected.insert(expected.end(), envs.begin(), envs.end());
  }
}

}  // namespace

Scenarios ThreadScenarios() {
  return {
      {"many_receivers_sync", ManyReceiversSync},
      {"many_receivers_sync_queued", ManyReceiversSyncQueued},
      {"many_receivers_async", ManyReceiversAsync},
      {"close_while_stepping_sync", CloseWhileSteppingSync},
      {"close_while_stepping_sync_queued", CloseWhileSteppingSyncQueued},
      {"close_while_stepping_async", CloseWhileSteppingAsync},
      {"closers_race", ClosersRace},
      {"rows_at_rest_fail", RowsAtRestFail},
      {"rows_at_rest_show", RowsAtRestShow},
      {"slow_environment_holds_nobody_up", SlowEnvironmentHoldsNobodyUp},
      {"one_thread_is_first_in_first_out", OneThreadIsFirstInFirstOut},
  };
}

}  // namespace rollouts
