// SPDX-License-Identifier: Apache-2.0
// Scenarios of synchronous rounds: see pool_stress.cpp.
#include "pool_stress.h"

namespace rollouts {
namespace {

// Rounds of random subsets, cheap ones (run by Recv) and dear ones (queued), in one pool.
void SyncRounds() {
  const auto pool = MakeCartPoles(MakeOptions(1500, 1500, 3));
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

// Rounds into arrays of the caller, which the pool forgets with the round.
void RoundsIntoGivenArrays() {
  const std::int32_t num_envs = 1500;
  const auto pool = MakeCartPoles(MakeOptions(num_envs, num_envs, 3));
  SendReset(*pool);
  pool->Release(pool->Recv(Later()).buffer.get());
  for (int round = 0; round < 100; ++round) {
    const auto rows = static_cast<std::size_t>(round % 2 ? num_envs : 700);
    auto obs = std::make_unique<float[]>(4 * rows);
    auto reward = std::make_unique<double[]>(rows);
    BatchView out;
    out.obs = reinterpret_cast<std::uint8_t*>(obs.get());
    out.reward = reward.get();
    Send(*pool, pool->all_envs().first(rows), &out);
    bool refused = false;
    try {
      Send(*pool, pool->all_envs().last(1));
    } catch (const ProtocolError&) {
      refused = true;
    }
    CHECK(refused);
    if (round % 5 == 4) {
      CHECK(pool->Drain(Later()));
      continue;
    }
    const Received received = pool->Recv(Later());
    CHECK(received.buffer->target().obs == out.obs && received.rows == static_cast<int>(rows));
    CHECK(std::count(reward.get(), reward.get() + rows, 1.0) == static_cast<int>(rows));
    pool->Release(received.buffer.get());
  }
}

// Rounds of the whole pool, which threads take from their own ranges and each other's:
// every environment is stepped once in each, and stats may be read and cleared meanwhile.
void WholeRounds() {
  SetGate(true);
  for (const std::int32_t threads : {2, 3, 5}) {
    for (const std::int32_t num_envs : {3, 37, 3000}) {
      const PoolOptions options = MakeOptions(num_envs, num_envs, threads, AutoresetMode::kNextStep);
      const auto pool = num_envs < 100 ? MakeGates(options) : MakeCartPoles(options);
      std::atomic<bool> stop{false};
      std::thread reader([&] {
        for (std::int64_t last = 0; !stop;) {
          const std::int64_t steps = pool->stats().env_steps;
          CHECK(steps >= last && steps <= 200 * num_envs);
          last = steps;
          std::this_thread::yield();  // or on few cores the others wait for the lock
        }
      });
      SendReset(*pool);
      for (int round = 0; round <= 200; ++round) {
        const Received received = pool->Recv(Later());
        std::vector<std::int32_t> expected(num_envs);
        std::iota(expected.begin(), expected.end(), 0);
        CHECK(Envs(*pool, received) == expected);
        pool->Release(received.buffer.get());
        CHECK(pool->stats().env_steps == round * num_envs);
        if (round == 200) break;
        Send(*pool, pool->all_envs());
      }
      stop = true;
      reader.join();
    }
  }
}

// Large pools let all threads copy the actions into their rows; every row once, and all are
// there before the round begins.
void SharedRows() {
  const std::int32_t num_envs = 10'000;
  for (const std::int32_t threads : {2, 3, 5}) {
    const auto pool = MakeCartPoles(MakeOptions(num_envs, num_envs, threads));
    SendReset(*pool);
    pool->Release(pool->Recv(Later()).buffer.get());
    std::vector<std::int32_t> given(num_envs), copies(num_envs, 0);
    for (int round = 1; round <= 100; ++round) {
      for (std::int32_t i = 0; i < num_envs; ++i) given[i] = (i + round) % 2;
      auto* rows = reinterpret_cast<std::int32_t*>(pool->ActionRow(0));
      // every fourth is refused in one of its rows, and then nothing is sent
      const std::int32_t bad_row = round % 4 == 0 ? round * 97 : num_envs;
      const bool sent = pool->Send(pool->all_envs(), [&](std::int64_t first, std::int64_t count) {
        std::copy_n(given.data() + first, count, rows + first);
        for (std::int64_t i = first; i < first + count; ++i) ++copies[i];
        return bad_row < first || bad_row >= first + count;
      });
      CHECK(std::count(copies.begin(), copies.end(), round) == num_envs);
      CHECK(sent == (bad_row == num_envs));
      CHECK(pool->num_in_flight() == (sent ? num_envs : 0));
      if (!sent) continue;
      const Received received = pool->Recv(Later());
      CHECK(received.rows == num_envs);
      std::vector<std::int32_t> stepped(num_envs);
      pool->ReadActions(pool->all_envs(), reinterpret_cast<std::uint8_t*>(stepped.data()));
      CHECK(stepped == given);
      pool->Release(received.buffer.get());
    }
  }
}

// Close, which needs no Python, comes while the threads copy actions.
void CloseWhileRowsAreShared() {
  const std::int32_t num_envs = 10'000;
  for (int i = 0; i < 40; ++i) {
    const auto pool = MakeCartPoles(MakeOptions(num_envs, num_envs, 3));
    SendReset(*pool);
    pool->Release(pool->Recv(Later()).buffer.get());
    std::latch started{1};
    std::thread closer([&] {
      started.wait();
      pool->Close();
    });
    std::vector<std::int32_t> copies(num_envs, 0);
    std::int32_t rounds = 0;
    UntilClosed([&] {
      if (rounds == i % 4) started.count_down();
      const bool sent = pool->Send(pool->all_envs(), [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t row = first; row < first + count; ++row) ++copies[row];
        return false;
      });
      CHECK(!sent);
      ++rounds;
      CHECK(std::count(copies.begin(), copies.end(), rounds) == num_envs);
    });
    closer.join();
  }
}

}  // namespace

Scenarios RoundScenarios() {
  return {
      {"close_while_rows_are_shared", CloseWhileRowsAreShared},
      {"rounds_into_given_arrays", RoundsIntoGivenArrays},
      {"shared_rows", SharedRows},
      {"sync_rounds", SyncRounds},
      {"whole_rounds", WholeRounds},
  };
}

}  // namespace rollouts
