// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/rate_limiter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "rollouts/support/errors.h"

namespace rollouts::replay {
namespace {

// Throws for a size below 1: nothing can be sampled from an empty table.
void CheckMinSize(std::int64_t min_size) {
  if (min_size < 1) {
    throw SpecError("the rate limiter's min_size is " + std::to_string(min_size) +
                    ", expected 1 or more items");
  }
}

}  // namespace

RateLimiterSpec RateLimiterSpec::MinSize(std::int64_t n) {
  CheckMinSize(n);
  // these bounds are never reached, so that min_size alone decides
  constexpr double kMost = std::numeric_limits<double>::max();
  return {1.0, n, -kMost, kMost};
}

RateLimiterSpec RateLimiterSpec::SampleToInsertRatio(double samples_per_insert,
                                                     std::int64_t min_size, double min_diff,
                                                     double max_diff) {
  CheckMinSize(min_size);
  if (!(samples_per_insert > 0) || !std::isfinite(samples_per_insert)) {
    throw SpecError("samples_per_insert is " + std::to_string(samples_per_insert) +
                    ", expected a number above 0");
  }
  const double width = 2 * std::max(1.0, samples_per_insert);
  if (!(max_diff - min_diff >= width)) {
    throw SpecError("the rate limiter's bounds are " + std::to_string(min_diff) + " to " +
                    std::to_string(max_diff) + ", expected at least " + std::to_string(width) +
                    " (2 * max(1, samples_per_insert)) between them, else inserts and samples " +
                    "could both be blocked for ever; raise error_buffer");
  }
  // the difference when min_size items are in and nothing was sampled
  const double filled = samples_per_insert * static_cast<double>(min_size);
  if (min_diff > filled) {
    throw SpecError("the rate limiter's lower bound is " + std::to_string(min_diff) +
                    ", expected at most samples_per_insert * min_size = " +
                    std::to_string(filled) + ", else nothing could be sampled once min_size " +
                    "items are in");
  }
  return {samples_per_insert, min_size, min_diff, max_diff};
}

RateLimiterSpec RateLimiterSpec::Queue(std::int64_t n) {
  if (n < 1) {
    throw SpecError("the queue's size is " + std::to_string(n) + ", expected 1 or more items");
  }
  // the difference is the queue's length, because each sample removes its item
  return {1.0, 1, 0.0, static_cast<double>(n)};
}

std::int64_t RateLimiter::AdmittedSamples(std::int64_t n) const {
  if (CanSample(n)) return n;
  if (size() < spec_.min_size) return 0;
  // the samples that the lower bound leaves; a sample lowers the difference by one
  const double room = std::clamp(Diff(0) - spec_.min_diff, 0.0, static_cast<double>(n));
  auto admitted = static_cast<std::int64_t>(room);
  // CanSample corrects the rounding of `room`
  while (admitted > 0 && !CanSample(admitted)) --admitted;
  return admitted;
}

}  // namespace rollouts::replay
