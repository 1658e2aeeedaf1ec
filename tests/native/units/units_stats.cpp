// SPDX-License-Identifier: Apache-2.0
// pool/: statistics of steps.
#include <algorithm>
#include <limits>
#include <vector>

#include "rollouts/pool/step_stats.h"
#include "units.h"

namespace rollouts {
namespace {

TEST(TimeHistogram, BucketsRiseWithWhatIsInThem) {
  std::int32_t before = -1;
  for (std::int64_t ps = 0; ps < 5000; ++ps) {
    const std::int32_t bucket = TimeHistogram::Bucket(ps);
    CHECK(bucket == before || bucket == before + 1);
    before = bucket;
  }
  CHECK_EQ(TimeHistogram::Bucket(-5), 0);
  CHECK_EQ(TimeHistogram::Bucket(0), 0);
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK_EQ(TimeHistogram::Bucket(most), TimeHistogram::kBuckets - 1);
}

TEST(TimeHistogram, ABucketsMiddleIsNearWhatIsInIt) {
  std::int64_t ps = 1;
  while (ps < std::int64_t{1} << 53) {
    const double seconds = TimeHistogram::Seconds(TimeHistogram::Bucket(ps));
    const double given = static_cast<double>(ps) * 1e-12;
    CHECK(std::abs(seconds - given) <= 0.032 * given);
    ps += std::max<std::int64_t>(1, ps / 37);
  }
}

using ChunkTimer = StepStats::ChunkTimer;

const Command kSteps[] = {Command::kStep, Command::kStep, Command::kStep, Command::kStep};
constexpr std::int32_t kSlow = 5'000;  // ns: timed at every step

TEST(StepStats, NothingTimedIsNoNumber) {
  const StepStats stats(2, 1, kSlow);
  const StepStatsSnapshot read = stats.Read();
  CHECK_EQ(read.env_steps, 0);
  CHECK_EQ(read.step_time.count, 0);
  CHECK(std::isnan(read.step_time.p50) && std::isnan(read.batch_wait.max));
  CHECK_EQ(read.env_step_time.size(), std::size_t{2});
  CHECK(std::isnan(read.env_step_time[0]));
}

TEST(StepStats, StepsAreCountedByWhoeverDidThem) {
  StepStats stats(4, 2, kSlow);
  const std::int32_t envs[] = {3, 1};
  stats.Sent(envs);
  {
    ChunkTimer timer(stats, 1, envs, kSteps, /*uniform=*/true, /*sent_all=*/false);
    timer.Finish(1);
    timer.Finish(1);
  }
  const std::int32_t one[] = {0};
  stats.Sent(one);
  ChunkTimer(stats, 0, one, kSteps, true, false).Finish(1);
  const StepStatsSnapshot read = stats.Read();
  CHECK_EQ(read.env_steps, 3);
  CHECK_EQ(read.step_time.count, 3);
  CHECK_EQ(read.queue_wait.count, 3);
  CHECK(read.step_time.p50 <= read.step_time.p90 && read.step_time.p99 <= read.step_time.max);
  CHECK(read.env_step_time[3] >= 0 && read.env_step_time[1] >= 0 && read.env_step_time[0] >= 0);
  CHECK(std::isnan(read.env_step_time[2]));
}

TEST(StepStats, ResetsWaitButAreNoSteps) {
  StepStats stats(4, 1, kSlow);
  const Command mixed[] = {Command::kReset, Command::kStep, Command::kReset, Command::kStep};
  const std::int32_t all[] = {0, 1, 2, 3};
  stats.SentAll();
  ChunkTimer(stats, 0, all, mixed, /*uniform=*/false, /*sent_all=*/true).Finish(4);
  StepStatsSnapshot read = stats.Read();
  CHECK_EQ(read.env_steps, 2);
  CHECK_EQ(read.queue_wait.count, 4);
  // their time is another one's, so that of the whole chunk is left out
  CHECK_EQ(read.step_time.count, 0);
  const std::int32_t reset[] = {0};
  ChunkTimer(stats, 0, reset, mixed, /*uniform=*/true, true).Finish(1);
  CHECK_EQ(stats.Read().env_steps, 2);
}

TEST(StepStats, AfterAResetEverythingBeginsAnew) {
  StepStats stats(1, 1, kSlow);
  const std::int32_t env[] = {0};
  const auto step = [&] {
    stats.SentAll();
    ChunkTimer(stats, 0, env, kSteps, true, true).Finish(1);
    StepStats::RecvTimer(stats).Received();
    stats.AddError();
  };
  step();
  stats.Reset();
  StepStatsSnapshot read = stats.Read();
  CHECK_EQ(read.env_steps + read.recvs + read.env_errors + read.step_time.count, 0);
  CHECK(std::isnan(read.env_step_time[0]));
  step();
  step();
  read = stats.Read();
  CHECK_EQ(read.env_steps, 2);
  CHECK_EQ(read.recvs, 2);
  CHECK_EQ(read.env_errors, 2);
  CHECK_EQ(read.step_time.count, 2);
  CHECK_EQ(read.batch_wait.count, 2);
}

TEST(StepStats, ARecvThatTimesOutCountsWithTheOneThatComes) {
  StepStats stats(1, 1, kSlow);
  { const StepStats::RecvTimer timed_out(stats); }
  CHECK_EQ(stats.Read().recvs, 0);
  StepStats::RecvTimer(stats).Received();
  CHECK_EQ(stats.Read().recvs, 1);
  CHECK_EQ(stats.Read().batch_wait.count, 1);
}

TEST(StepStats, LightStepsAreTimedAtOneSendIn32) {
  StepStats stats(1, 1, /*step_cost_ns=*/20);
  const std::int32_t env[] = {0};
  constexpr int kSends = 32'000;
  for (int i = 0; i < kSends; ++i) {
    stats.SentAll();
    ChunkTimer(stats, 0, env, kSteps, true, true).Finish(1);
  }
  const StepStatsSnapshot read = stats.Read();
  CHECK_EQ(read.env_steps, kSends);
  CHECK(read.step_time.count > kSends / 32 * 8 / 10);
  CHECK(read.step_time.count < kSends / 32 * 12 / 10);
}

TEST(StepStats, EnvironmentsThatAreSentInTurnAreAllTimed) {
  StepStats stats(2, 1, 20);
  const std::int32_t envs[] = {0, 1};
  for (int i = 0; i < 4'000; ++i) {
    const std::span<const std::int32_t> half(envs + i % 2, 1);
    stats.Sent(half);
    ChunkTimer(stats, 0, half, kSteps, true, false).Finish(1);
  }
  for (const double seconds : stats.Read().env_step_time) CHECK(seconds >= 0);
}

}  // namespace
}  // namespace rollouts
