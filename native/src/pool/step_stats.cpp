// SPDX-License-Identifier: Apache-2.0
#include "rollouts/pool/step_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

namespace rollouts {
namespace {

constexpr std::int64_t kPicosecondsPerNs = 1'000;
constexpr double kSecondsPerPicosecond = 1e-12;

void AddTo(std::vector<std::int64_t>& counts, const TimeHistogram& histogram) {
  // the vector is empty before the first histogram
  counts.resize(TimeHistogram::kBuckets);
  for (std::int32_t i = 0; i < TimeHistogram::kBuckets; ++i) counts[i] += histogram.Get(i);
}

// `counts` minus `base`, which is empty before the first Reset.
std::vector<std::int64_t> Since(const std::vector<std::int64_t>& base, std::vector<std::int64_t> counts) {
  for (std::size_t i = 0; i < base.size(); ++i) counts[i] -= base[i];
  return counts;
}

// All numbers are NaN where nothing was timed.
TimeSummary Summarize(const std::vector<std::int64_t>& counts) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  TimeSummary summary{0, kNone, kNone, kNone, kNone};
  for (const std::int64_t count : counts) summary.count += count;
  const auto at = [&](double fraction) {
    // the smallest bucket such that this fraction of all durations lies in it or below
    const auto wanted = static_cast<std::int64_t>(std::ceil(fraction * static_cast<double>(summary.count)));
    std::int64_t below = 0;
    for (std::int32_t bucket = 0; bucket < TimeHistogram::kBuckets; ++bucket) {
      below += counts[bucket];
      if (below >= wanted) return TimeHistogram::Seconds(bucket);
    }
    return kNone;
  };
  if (summary.count > 0) {
    summary.p50 = at(0.5);
    summary.p90 = at(0.9);
    summary.p99 = at(0.99);
    summary.max = at(1.0);
  }
  return summary;
}

}  // namespace

std::int32_t TimeHistogram::Bucket(std::int64_t picoseconds) {
  const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(picoseconds, 0));
  if (value < kPerOctave) return static_cast<std::int32_t>(value);
  // the four bits below the leading one are the bucket's number within its octave
  const int shift = std::bit_width(value) - std::bit_width(std::uint64_t{kPerOctave});
  const std::int64_t bucket = std::int64_t{shift} * kPerOctave + static_cast<std::int64_t>(value >> shift);
  return static_cast<std::int32_t>(std::min<std::int64_t>(bucket, kBuckets - 1));
}

double TimeHistogram::Seconds(std::int32_t bucket) {
  if (bucket < kPerOctave) return bucket * kSecondsPerPicosecond;
  const std::int32_t shift = bucket / kPerOctave - 1;
  // all durations in a bucket count as its middle
  const double first = bucket % kPerOctave + kPerOctave;
  return std::ldexp(first + 0.5, shift) * kSecondsPerPicosecond;
}

StepStats::StepStats(std::int32_t num_envs, std::int32_t participants, std::int32_t step_cost_ns,
                     std::vector<std::shared_ptr<const EngineTallies>> engines)
    : num_envs_(num_envs),
      participants_(participants),
      by_participant_(std::make_unique<Participant[]>(participants)),
      by_env_(std::make_unique<EnvTime[]>(num_envs)),
      engines_(std::move(engines)),
      send_sampler_(step_cost_ns >= kAlwaysFromNs, 1),
      sent_at_(num_envs),
      recv_sampler_(step_cost_ns >= kAlwaysFromNs, 2),
      recv_timed_(recv_sampler_.Next()) {}

void StepStats::AddTimes(std::int32_t participant, std::span<const std::int32_t> envs,
                         std::int64_t steps, std::int64_t sent_at, std::int64_t begin) {
  const std::int64_t end = Now();
  const std::ptrdiff_t rows = std::ssize(envs);
  Participant& own = by_participant_[participant];
  // each environment of a chunk has waited as long as the chunk
  own.queue_wait.Add((begin - sent_at) * kPicosecondsPerNs, rows);
  // a reset takes another time than a step and is left out
  if (steps != rows) return;
  // the clock is read once per chunk, so that its rows share the time equally
  const std::int64_t each = (end - begin) * kPicosecondsPerNs / rows;
  own.step_time.Add(each, rows);
  for (const std::int32_t env : envs) {
    by_env_[env].picoseconds.Add(each);
    by_env_[env].steps.Add(1);
  }
}

void StepStats::AddRecv() {
  recvs_.Add(1);
  if (recv_timed_) batch_wait_.Add(waited_ns_ * kPicosecondsPerNs, 1);
  waited_ns_ = 0;
  // whether the next recv reads the clock is decided now, before it begins
  recv_timed_ = recv_sampler_.Next();
}

// Threads go on meanwhile, so what they add may be in some of the sums only.
StepStats::Totals StepStats::Sum() const {
  Totals sum;
  for (std::int32_t i = 0; i < participants_; ++i) {
    const Participant& participant = by_participant_[i];
    sum.steps += participant.steps.Get();
    AddTo(sum.step_time, participant.step_time);
    AddTo(sum.queue_wait, participant.queue_wait);
  }
  AddTo(sum.batch_wait, batch_wait_);
  for (const auto& engine : engines_) {
    const EngineSteps own = engine->Sum();
    sum.engines.together += own.together;
    sum.engines.alone += own.alone;
  }
  sum.recvs = recvs_.Get();
  sum.errors = errors_.load(std::memory_order_relaxed);
  sum.env_picoseconds.reserve(num_envs_);
  sum.env_steps.reserve(num_envs_);
  for (std::int32_t env = 0; env < num_envs_; ++env) {
    sum.env_picoseconds.push_back(by_env_[env].picoseconds.Get());
    sum.env_steps.push_back(by_env_[env].steps.Get());
  }
  return sum;
}

StepStatsSnapshot StepStats::Read() const {
  const MutexLock lock(base_mutex_);
  const Totals now = Sum();
  StepStatsSnapshot result;
  // threads never set their counts back; a reset only moved the base
  result.env_steps = now.steps - base_.steps;
  result.recvs = now.recvs - base_.recvs;
  result.env_errors = now.errors - base_.errors;
  result.engine_steps = {now.engines.together - base_.engines.together,
                         now.engines.alone - base_.engines.alone};
  result.step_time = Summarize(Since(base_.step_time, now.step_time));
  result.queue_wait = Summarize(Since(base_.queue_wait, now.queue_wait));
  result.batch_wait = Summarize(Since(base_.batch_wait, now.batch_wait));

  const auto times = Since(base_.env_picoseconds, now.env_picoseconds);
  const auto steps = Since(base_.env_steps, now.env_steps);
  for (std::int32_t env = 0; env < num_envs_; ++env) {
    // 0 / 0 gives NaN, which means that nothing was timed
    result.env_step_time.push_back(static_cast<double>(times[env]) / static_cast<double>(steps[env]) *
                                   kSecondsPerPicosecond);
  }
  return result;
}

void StepStats::Reset() {
  const MutexLock lock(base_mutex_);
  // nothing is set to 0, because each number has one writer, which goes on adding
  base_ = Sum();
}

}  // namespace rollouts
