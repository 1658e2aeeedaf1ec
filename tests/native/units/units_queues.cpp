// SPDX-License-Identifier: Apache-2.0
// pool/: the work queue, ranges of a round, waiting.
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "rollouts/pool/round_ranges.h"
#include "rollouts/pool/work_queue.h"
#include "rollouts/support/event.h"
#include "units.h"

namespace rollouts {
namespace {

std::vector<std::int32_t> Claimed(WorkQueue& queue, std::size_t most) {
  std::vector<std::int32_t> envs(most);
  const WorkQueue::Claim claim = queue.TryClaim(envs);
  envs.resize(static_cast<std::size_t>(claim.count));
  return envs;
}

TEST(WorkQueue, GivesBackInTheOrderOfPushes) {
  WorkQueue queue(4);
  CHECK(queue.Empty());
  CHECK(Claimed(queue, 3).empty());
  queue.Push(std::vector<std::int32_t>{7, 5});
  queue.Push(std::vector<std::int32_t>{6});
  CHECK_EQ(queue.size(), 3);
  CHECK_EQ(queue.pushed(), 3);
  CHECK((Claimed(queue, 2) == std::vector<std::int32_t>{7, 5}));
  CHECK((Claimed(queue, 2) == std::vector<std::int32_t>{6}));
  CHECK(queue.Empty());
  CHECK_EQ(queue.pushed(), 3);
}

TEST(WorkQueue, ClaimsKnowTheirPositionSinceTheBeginning) {
  WorkQueue queue(3);
  std::vector<std::int32_t> out(2);
  std::int64_t expected = 0;
  for (int round = 0; round < 50; ++round) {
    queue.Push(std::vector<std::int32_t>{0, 1, 2});
    while (!queue.Empty()) {
      const WorkQueue::Claim claim = queue.TryClaim(out);
      CHECK_EQ(claim.position, expected);
      expected += claim.count;
    }
  }
  CHECK_EQ(expected, 150);
}

TEST(WorkQueue, AClaimOfNothingTakesNothing) {
  WorkQueue queue(2);
  queue.Push(std::vector<std::int32_t>{1});
  CHECK_EQ(queue.TryClaim({}).count, 0);
  CHECK_EQ(queue.size(), 1);
  queue.Push({});
  CHECK_EQ(queue.pushed(), 1);
}

TEST(WorkQueue, HoldsItsCapacityAroundTheRing) {
  for (const std::int32_t capacity : {1, 2, 3, 5, 8, 100}) {
    WorkQueue queue(capacity);
    std::vector<std::int32_t> envs(static_cast<std::size_t>(capacity));
    for (std::int32_t round = 0; round < 7; ++round) {
      std::iota(envs.begin(), envs.end(), round * 1000);
      queue.Push(envs);
      CHECK_EQ(queue.size(), std::int64_t{capacity});
      CHECK(Claimed(queue, envs.size() + 1) == envs);
    }
  }
}

TEST(WorkQueue, EveryIndexIsClaimedByOneOfManyThreads) {
  constexpr std::int32_t kEnvs = 64, kThreads = 3, kRounds = 400;
  WorkQueue queue(kEnvs);
  std::vector<std::atomic<std::int32_t>> times(kEnvs);
  std::atomic<std::int64_t> claimed{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::int32_t> out(static_cast<std::size_t>(t + 1));
      while (!done) {
        const WorkQueue::Claim claim = queue.TryClaim(out);
        for (std::int32_t i = 0; i < claim.count; ++i) ++times[out[i]];
        claimed += claim.count;
        if (claim.count == 0) std::this_thread::yield();
      }
    });
  }
  std::vector<std::int32_t> envs(kEnvs);
  std::iota(envs.begin(), envs.end(), 0);
  for (std::int64_t round = 1; round <= kRounds; ++round) {
    queue.Push(envs);
    // no more than the capacity is ever in flight
    while (claimed < round * kEnvs) std::this_thread::yield();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  for (const auto& count : times) CHECK_EQ(count.load(), kRounds);
}

std::vector<EnvRange> Owned(const RoundRanges& ranges, std::int32_t participants) {
  std::vector<EnvRange> own;
  for (std::int32_t i = 0; i < participants; ++i) own.push_back(ranges.Own(i));
  return own;
}

TEST(RoundRanges, OwnRangesPartTheEnvironmentsInWholeGranules) {
  for (const std::int32_t num_envs : {1, 5, 64, 100, 1000}) {
    for (const std::int32_t participants : {1, 2, 3, 7}) {
      for (const std::int32_t granule : {1, 8, 64}) {
        const RoundRanges ranges(num_envs, participants, granule);
        std::int32_t next = 0;
        for (const auto& [first, count] : Owned(ranges, participants)) {
          CHECK_EQ(first, next);
          CHECK(count >= 0);
          next = first + count;
          CHECK(next == num_envs || next % granule == 0);
        }
        CHECK_EQ(next, num_envs);
      }
    }
  }
}

TEST(RoundRanges, RangesDifferByAGranuleAtMost) {
  const RoundRanges ranges(1024, 3, 64);
  std::int32_t least = 1024, most = 0;
  for (const auto& [first, count] : Owned(ranges, 3)) {
    least = std::min(least, count);
    most = std::max(most, count);
  }
  CHECK(most - least <= 64);
  CHECK(least > 0);
}

TEST(RoundRanges, BordersDoNotOverflow) {
  // granules times participants is beyond 32 bits
  const std::int32_t num_envs = 1 << 24;
  const RoundRanges ranges(num_envs, 300, 1);
  const EnvRange last = ranges.Own(299);
  CHECK_EQ(last.first + last.count, num_envs);
  CHECK(last.count > 50'000 && last.count < 60'000);
}

TEST(RoundRanges, NothingIsLeftBeforeTheFirstRoundAndAfterEach) {
  RoundRanges ranges(10, 2, 1);
  CHECK(ranges.Empty());
  CHECK_EQ(ranges.TryClaim(0, 5).count, 0);
  for (int round = 0; round < 3; ++round) {
    ranges.Begin();
    CHECK(!ranges.Empty());
    while (ranges.TryClaim(1, 3).count > 0) {
    }
    CHECK(ranges.Empty());
  }
}

TEST(RoundRanges, OwnComesFirstFromTheFrontAndOthersFromTheirEnd) {
  RoundRanges ranges(8, 2, 1);
  ranges.Begin();
  const auto is = [](const EnvRange& range, std::int32_t first, std::int32_t count) {
    return range.first == first && range.count == count;
  };
  CHECK(is(ranges.TryClaim(0, 3), 0, 3));
  CHECK(is(ranges.TryClaim(0, 3), 3, 1));  // what is left of its own
  CHECK(is(ranges.TryClaim(0, 3), 5, 3));  // the far end of the other's
  CHECK(is(ranges.TryClaim(1, 9), 4, 1));
  CHECK_EQ(ranges.TryClaim(1, 9).count, 0);
}

TEST(RoundRanges, TheNextParticipantIsHelpedFirst) {
  RoundRanges ranges(9, 3, 1);
  ranges.Begin();
  CHECK_EQ(ranges.TryClaim(2, 9).first, 6);
  CHECK_EQ(ranges.TryClaim(2, 9).first, 0);  // participant 0 comes after 2
  CHECK_EQ(ranges.TryClaim(2, 9).first, 3);
}

TEST(RoundRanges, EveryEnvironmentIsClaimedByOneOfManyThreads) {
  constexpr std::int32_t kEnvs = 100, kThreads = 3, kRounds = 300;
  RoundRanges ranges(kEnvs, kThreads, 8);
  std::vector<std::atomic<std::int32_t>> times(kEnvs);
  std::atomic<std::int64_t> claimed{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (std::int32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      while (!done) {
        const EnvRange range = ranges.TryClaim(t, 5);
        for (std::int32_t i = 0; i < range.count; ++i) ++times[range.first + i];
        claimed += range.count;
        if (range.count == 0) std::this_thread::yield();
      }
    });
  }
  for (std::int64_t round = 1; round <= kRounds; ++round) {
    ranges.Begin();
    while (claimed < round * kEnvs) std::this_thread::yield();
    CHECK(ranges.Empty());
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  for (const auto& count : times) CHECK_EQ(count.load(), kRounds);
}

using std::chrono::microseconds;
using std::chrono::milliseconds;

Event::Clock::time_point In(milliseconds time) { return Event::Clock::now() + time; }

TEST(Event, WhatIsReadyIsNotWaitedFor) {
  Event event;
  // a deadline in the past: only the condition can say yes
  CHECK(event.WaitUntil([] { return true; }, In(milliseconds(-1)), microseconds(0)));
}

TEST(Event, ADeadlineEndsTheWaitWithTheLastAnswer) {
  Event event;
  int looks = 0;
  const auto begin = Event::Clock::now();
  CHECK(!event.WaitUntil([&] { return ++looks < 0; }, In(milliseconds(5)), microseconds(10)));
  CHECK(Event::Clock::now() - begin >= milliseconds(5));
  CHECK(looks > 2);
  // an event that becomes ready at the very end is ready
  looks = 0;
  CHECK(event.WaitUntil([&] { return ++looks > 33; }, In(milliseconds(1)), microseconds(0)));
}

TEST(Event, AParkedWaiterIsWoken) {
  Event event;
  std::atomic<int> value{0};
  std::atomic<int> woken{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] {
      // no spinning: they park at once
      if (event.WaitUntil([&] { return value == 1; }, In(milliseconds(300'000)), microseconds(0))) {
        ++woken;
      }
    });
  }
  event.Notify();  // not yet: nobody may go
  value = 1;
  event.Notify();
  for (std::thread& waiter : waiters) waiter.join();
  CHECK_EQ(woken.load(), 3);
}

TEST(Event, NoWakeUpIsLostBetweenManyTurns) {
  Event ping, pong;
  std::atomic<int> turn{0};
  constexpr int kTurns = 2000;
  std::thread other([&] {
    for (int i = 1; i < 2 * kTurns; i += 2) {
      CHECK(ping.WaitUntil([&] { return turn == i; }, In(milliseconds(300'000)), microseconds(0)));
      turn = i + 1;
      pong.Notify();
    }
  });
  for (int i = 0; i < 2 * kTurns; i += 2) {
    CHECK(pong.WaitUntil([&] { return turn == i; }, In(milliseconds(300'000)), microseconds(0)));
    turn = i + 1;
    ping.Notify();
  }
  other.join();
  CHECK_EQ(turn.load(), 2 * kTurns);
}

}  // namespace
}  // namespace rollouts
