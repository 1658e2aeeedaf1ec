// SPDX-License-Identifier: Apache-2.0
// The rule for when a table may be sampled and inserted into: Reverb's rule (Cassirer et al.,
// "Reverb: a framework for experience replay", 2021).
#pragma once

#include <cstdint>

namespace rollouts::replay {

struct RateLimiterSpec {
  double samples_per_insert = 1;
  std::int64_t min_size = 1;  // items before any may be sampled
  double min_diff = 0;        // bounds of inserts * samples_per_insert - samples
  double max_diff = 0;

  // Admits samples once there are n items; limits nothing else.
  static RateLimiterSpec MinSize(std::int64_t n);
  // Throws SpecError for bounds that block both sides for ever.
  static RateLimiterSpec SampleToInsertRatio(double samples_per_insert, std::int64_t min_size,
                                             double min_diff, double max_diff);
  // Admits at most n items that were not sampled yet; for tables that are queues or stacks.
  static RateLimiterSpec Queue(std::int64_t n);
  bool operator==(const RateLimiterSpec&) const = default;
};

// Counts inserts and samples, and decides. Not thread-safe: the table's mutex guards it.
class RateLimiter {
 public:
  explicit RateLimiter(const RateLimiterSpec& spec) : spec_(spec) {}

  bool CanSample(std::int64_t n) const {
    return size() >= spec_.min_size && Diff(0) - static_cast<double>(n) >= spec_.min_diff;
  }
  bool CanInsert(std::int64_t n) const {
    return size() + n <= spec_.min_size || Diff(n) <= spec_.max_diff;
  }
  // The number of samples, at most n, that would be admitted now, one after the other, if no sample
  // removed an item.
  std::int64_t AdmittedSamples(std::int64_t n) const;

  void Insert() { ++inserts_; }
  void Delete() { ++deletes_; }
  void Sample() { ++samples_; }
  void Reset() { inserts_ = deletes_ = samples_ = 0; }
  void Load(std::int64_t inserts, std::int64_t samples, std::int64_t deletes) {
    inserts_ = inserts;
    samples_ = samples;
    deletes_ = deletes;
  }

  const RateLimiterSpec& spec() const { return spec_; }
  std::int64_t inserts() const { return inserts_; }
  std::int64_t samples() const { return samples_; }
  std::int64_t deletes() const { return deletes_; }
  std::int64_t size() const { return inserts_ - deletes_; }

 private:
  // inserts * samples_per_insert - samples, after n more inserts
  double Diff(std::int64_t n) const {
    return static_cast<double>(inserts_ + n) * spec_.samples_per_insert -
           static_cast<double>(samples_);
  }

  RateLimiterSpec spec_;
  std::int64_t inserts_ = 0;
  std::int64_t samples_ = 0;
  std::int64_t deletes_ = 0;
};

}  // namespace rollouts::replay
