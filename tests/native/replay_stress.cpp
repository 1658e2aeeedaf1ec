// SPDX-License-Identifier: Apache-2.0
// Many threads on one replay store, for the sanitizers: see test_replay_sanitizers.py.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "rollouts/replay/replay_store.h"
#include "rollouts/support/errors.h"

namespace rollouts::replay {
namespace {

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);          \
      std::abort();                                                                 \
    }                                                                               \
  } while (false)

constexpr std::int32_t kFrameBytes = 24;
constexpr std::int32_t kStack = 3;

std::vector<ColumnSpec> Columns() {
  return {{.name = "obs", .dtype = "|u1", .item_bytes = 1, .shape = {kFrameBytes}, .stack = kStack},
          {.name = "x", .dtype = "<i8", .item_bytes = 8, .shape = {}}};
}

TableSpec MakeTable(const std::string& name, SelectorKind sampler, SelectorKind remover,
                    const RateLimiterSpec& limiter, std::int64_t max_size) {
  return {.name = name,
          .max_size = max_size,
          .sampler = {sampler, 0.6},
          .remover = {remover, 1.0},
          .limiter = limiter};
}

// Single frames and x, both made of the row's number.
void AppendRows(ReplayStore& store, std::int64_t stream, std::int64_t from, std::int64_t count) {
  std::vector<std::uint8_t> frames;
  std::vector<std::int64_t> x;
  for (std::int64_t row = from; row < from + count; ++row) {
    frames.insert(frames.end(), kFrameBytes, static_cast<std::uint8_t>(row % 251));
    x.push_back(row);
  }
  AppendBatch batch;
  batch.streams = {&stream, 1};
  batch.steps = count;
  batch.columns = {{frames.data(), false}, {reinterpret_cast<std::uint8_t*>(x.data()), false}};
  std::vector<std::int64_t> rows(static_cast<std::size_t>(count));
  store.Append(batch, rows);
}

// Inserts transitions that start at [from, from + count); returns how many were taken.
std::size_t InsertItems(ReplayStore& store, std::size_t table, std::int64_t stream,
                        std::int64_t from, std::int64_t count,
                        std::optional<Clock::time_point> deadline = {}) {
  const auto size = static_cast<std::size_t>(count);
  std::vector<std::int64_t> streams(size, stream), starts, keys(size);
  for (std::int64_t i = 0; i < count; ++i) starts.push_back(from + i);
  const std::vector<std::int32_t> lengths(size, 2);
  const std::vector<double> priorities(size, 1.5);
  ReplayStore::Runs runs = store.NewRuns();
  store.Refer(table, streams, starts, lengths, std::vector<std::int32_t>(size, 0), runs);
  store.Insert(table, runs, priorities, deadline, keys);
  return runs.taken();
}

// Samples, gathers and checks what came. `numbered`: each row was made of its own number; else,
// only that its columns belong together is sure.
bool SampleBatch(ReplayStore& store, std::size_t table, const GatherPlan& plan, std::int64_t count,
                 std::vector<std::int64_t>& keys, std::optional<Clock::time_point> deadline = {},
                 bool numbered = true) {
  std::vector<Sampled> batch;
  if (!store.table(table).Sample(count, deadline, batch)) return false;
  const auto size = static_cast<std::size_t>(count);
  std::vector<std::uint8_t> obs(size * kStack * kFrameBytes);
  std::vector<std::int64_t> x(2 * size), starts;
  keys.clear();
  for (const Sampled& sampled : batch) {
    keys.push_back(sampled.key);
    starts.push_back(sampled.run.start);
  }
  std::uint8_t* const out[] = {obs.data(), reinterpret_cast<std::uint8_t*>(x.data())};
  store.Gather(plan, batch, out);
  for (std::size_t i = 0; i < size; ++i) {
    CHECK(obs[((i + 1) * kStack - 1) * kFrameBytes] == x[2 * i + 1] % 251);
    if (!numbered) continue;
    CHECK(x[2 * i] == starts[i] && x[2 * i + 1] == starts[i] + 1);
    for (std::int64_t k = 0; k < kStack; ++k) {
      // the last row's stack; zeros before the first row of the stream
      const std::int64_t row = starts[i] + 1 - (kStack - 1 - k);
      const std::uint8_t* const frame = &obs[(i * kStack + static_cast<std::size_t>(k)) * kFrameBytes];
      CHECK(frame[0] == (row < 0 ? 0 : row % 251) && frame[kFrameBytes - 1] == frame[0]);
    }
  }
  return true;
}

GatherPlan Plan(const ReplayStore& store) {
  return GatherPlan(store.layout(), {{"obs", "obs", -1, 0}, {"x", "x", 0, 2}}, /*time_major=*/false);
}

Clock::time_point Soon() { return Clock::now() + std::chrono::milliseconds(20); }

void RunAll(std::vector<std::function<void()>> bodies) {
  std::vector<std::thread> threads;
  for (auto& body : bodies) threads.emplace_back(std::move(body));
  for (std::thread& thread : threads) thread.join();
}

// Writers that fill two tables; readers that sample, update and delete; with `states`, one that
// saves and loads meanwhile.
void WritersAndReaders(bool states) {
  constexpr std::int64_t kRounds = 60;
  constexpr std::int64_t kRows = 7;
  ReplayStore store(
      Columns(),
      {MakeTable("a", SelectorKind::kUniform, SelectorKind::kFifo, RateLimiterSpec::MinSize(1), 40),
       MakeTable("b", SelectorKind::kPrioritized, SelectorKind::kMinHeap, RateLimiterSpec::MinSize(1), 90)},
      {.num_streams = 3, .chunk_rows = 5, .history_rows = 8, .num_threads = 2});
  const GatherPlan plan = Plan(store);
  std::atomic<int> writing{3};
  std::vector<std::function<void()>> bodies;
  for (std::int64_t stream = 0; stream < 3; ++stream) {
    bodies.push_back([&, stream] {
      for (std::int64_t round = 0; round < kRounds; ++round) {
        try {
          std::int64_t oldest, next;
          store.StreamRows({&stream, 1}, {&oldest, 1}, {&next, 1});
          AppendRows(store, stream, next, kRows);
          const std::int64_t from = next > oldest ? next - 1 : next;
          for (std::size_t table = 0; table < 2; ++table) InsertItems(store, table, stream, from, kRows - 1);
        } catch (const SpecError&) {
          CHECK(states);  // another state was loaded between the calls
        } catch (const ProtocolError&) {
          CHECK(states);
        }
      }
      --writing;
    });
  }
  for (std::size_t reader = 0; reader < 3; ++reader) {
    bodies.push_back([&, reader] {
      std::vector<std::int64_t> keys;
      for (std::size_t round = reader; writing > 0; ++round) {
        const std::size_t table = round % 2;
        if (!SampleBatch(store, table, plan, 16, keys, Soon(), !states)) continue;
        const std::vector<double> priorities(keys.size(), static_cast<double>(round % 5));
        store.table(table).UpdatePriorities(keys, priorities);
        if (round % 8 == 0) store.table(table).Delete(std::span(keys).first(2));
        if (round % 64 == 63) store.table(table).Reset();
        store.table(table).Keys();
      }
    });
  }
  if (states) {
    bodies.push_back([&] {
      while (writing > 0) {
        const std::vector<std::uint8_t> state = store.SaveState();
        std::this_thread::yield();
        store.LoadState(state);
      }
    });
  }
  RunAll(std::move(bodies));
  store.table(0).Reset();
  store.table(1).Reset();
  const std::int64_t streams[] = {0, 1, 2};
  store.EndStreams(streams);
  CHECK(store.memory().used_chunks == 0);
}

// Everybody waits for everybody; each item is taken once.
void QueueThroughput() {
  TableSpec queue = MakeTable("q", SelectorKind::kFifo, SelectorKind::kFifo, RateLimiterSpec::Queue(4), 4);
  queue.max_times_sampled = 1;
  queue.order = TableSpec::Order::kQueue;
  ReplayStore store(Columns(), {queue}, {.num_streams = 2, .chunk_rows = 4, .history_rows = 64});
  const GatherPlan plan = Plan(store);
  constexpr std::int64_t kItems = 120;
  std::vector<std::function<void()>> bodies;
  for (std::int64_t stream = 0; stream < 2; ++stream) {
    bodies.push_back([&, stream] {
      for (std::int64_t first = 0; first < kItems; first += 10) {
        AppendRows(store, stream, first + (first > 0), first > 0 ? 10 : 11);
        CHECK(InsertItems(store, 0, stream, first, 10) == 10);
      }
    });
    bodies.push_back([&] {
      std::vector<std::int64_t> keys;
      for (std::int64_t taken = 0; taken < kItems; taken += 2) CHECK(SampleBatch(store, 0, plan, 2, keys));
    });
  }
  RunAll(std::move(bodies));
  CHECK(store.table(0).Info().size == 0);
}

void CloseWakesEverybody() {
  ReplayStore store(
      Columns(),
      {MakeTable("full", SelectorKind::kUniform, SelectorKind::kFifo,
                 RateLimiterSpec::SampleToInsertRatio(1, 1, -1, 1), 9),
       MakeTable("empty", SelectorKind::kUniform, SelectorKind::kFifo, RateLimiterSpec::MinSize(1), 9)},
      {.num_streams = 3, .history_rows = 64});
  const GatherPlan plan = Plan(store);
  for (std::int64_t stream = 0; stream < 3; ++stream) AppendRows(store, stream, 0, 9);
  std::atomic<int> closed{0};
  std::vector<std::function<void()>> bodies;
  const auto expect_closed = [&](const std::function<void()>& body) {
    bodies.push_back([&closed, body] {
      try {
        for (;;) body();
      } catch (const ClosedError&) {
        ++closed;
      }
    });
  };
  for (std::int64_t stream = 0; stream < 3; ++stream) {
    expect_closed([&store, stream] { InsertItems(store, 0, stream, 0, 8); });
    expect_closed([&store, &plan] {
      std::vector<std::int64_t> keys;
      SampleBatch(store, 1, plan, 3, keys);
    });
  }
  bodies.push_back([&] {
    const auto info = [&](std::size_t table) { return store.table(table).Info(); };
    while (info(0).waiting_inserts < 3 || info(1).waiting_samples < 3) std::this_thread::yield();
    store.Close();
  });
  bodies.push_back([&] {
    while (!store.closed()) std::this_thread::yield();
    store.Close();
  });
  RunAll(std::move(bodies));
  CHECK(closed == 6);
}

const std::map<std::string, std::function<void()>>& Scenarios() {
  static const std::map<std::string, std::function<void()>> scenarios{
      {"close_wakes_everybody", CloseWakesEverybody},
      {"queue_throughput", QueueThroughput},
      {"states_meanwhile", [] { WritersAndReaders(/*states=*/true); }},
      {"writers_and_readers", [] { WritersAndReaders(/*states=*/false); }},
  };
  return scenarios;
}

}  // namespace
}  // namespace rollouts::replay

// Lists the scenarios where there is no argument.
int main(int argc, char** argv) {
  const auto& scenarios = rollouts::replay::Scenarios();
  if (argc < 2) {
    for (const auto& [name, body] : scenarios) std::printf("%s\n", name.c_str());
    return 0;
  }
  scenarios.at(argv[1])();
  return 0;
}
