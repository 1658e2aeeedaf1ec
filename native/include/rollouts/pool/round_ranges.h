// SPDX-License-Identifier: Apache-2.0
// A whole synchronous round, divided among the threads that step it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

namespace rollouts {

struct EnvRange {
  std::int32_t first = 0;
  std::int32_t count = 0;
};

// A participant owns the same environments in every round, so that their state stays in that core's
// caches and memory. A participant that is done with its own takes chunks from the far ends of the
// others' ranges: what it steals, too, is mostly the same each round.
//
// Memory order: a range is one atomic word, (end, next). Begin stores it with release after all
// that the round needs; every change after that is a compare-and-swap with acquire. Its success
// reads Begin's value or a later one of the same round, so the claimer sees all that came before
// Begin. A thread that still looks for work of an old round may claim in the new one, which is
// correct, because no other thread gets what it claimed. It cannot take anything from an old round,
// because Begin is called only when all of that round was stepped.
class RoundRanges {
 public:
  // All ranges but the last are equal, and whole multiples of `granule`.
  RoundRanges(std::int32_t num_envs, std::int32_t participants, std::int32_t granule)
      : size_(participants), ranges_(std::make_unique<Range[]>(participants)) {
    const std::int64_t granules = (num_envs + granule - 1) / granule;
    for (std::int32_t i = 0; i < participants; ++i) {
      const auto border = [&](std::int64_t at) {
        return static_cast<std::int32_t>(std::min<std::int64_t>(at * granules / size_ * granule, num_envs));
      };
      ranges_[i].own = {border(i), border(i + 1) - border(i)};
    }
  }

  // The environments that `participant` steps unless others help it.
  EnvRange Own(std::int32_t participant) const { return ranges_[participant].own; }

  // Offers every environment once. Call only when nothing of the last round is left.
  void Begin() {
    for (std::int32_t i = 0; i < size_; ++i) {
      const auto [first, count] = ranges_[i].own;
      ranges_[i].rest.store(Packed(first, first + count), std::memory_order_release);
    }
  }

  bool Empty() const {
    for (std::int32_t i = 0; i < size_; ++i) {
      if (Left(ranges_[i].rest.load(std::memory_order_acquire)) > 0) return false;
    }
    return true;
  }

  // Takes up to `limit` environments, the participant's own first; count 0 when none
  // are left. Never blocks.
  EnvRange TryClaim(std::int32_t participant, std::int32_t limit) {
    for (std::int32_t i = 0; i < size_; ++i) {
      const std::int32_t victim = participant + i < size_ ? participant + i : participant + i - size_;
      const EnvRange claimed = TryClaimFrom(ranges_[victim].rest, limit, /*from_end=*/i > 0);
      if (claimed.count > 0) return claimed;
    }
    return {};
  }

 private:
  struct alignas(64) Range {
    std::atomic<std::uint64_t> rest{0};
    EnvRange own;
  };

  static std::uint64_t Packed(std::int32_t next, std::int32_t end) {
    return static_cast<std::uint64_t>(end) << 32 | static_cast<std::uint32_t>(next);
  }
  static std::int32_t Next(std::uint64_t rest) { return static_cast<std::int32_t>(rest); }
  static std::int32_t End(std::uint64_t rest) { return static_cast<std::int32_t>(rest >> 32); }
  static std::int32_t Left(std::uint64_t rest) { return End(rest) - Next(rest); }

  static EnvRange TryClaimFrom(std::atomic<std::uint64_t>& range, std::int32_t limit, bool from_end) {
    std::uint64_t rest = range.load(std::memory_order_relaxed);
    while (Left(rest) > 0) {
      const std::int32_t count = std::min(limit, Left(rest));
      const std::int32_t next = Next(rest);
      const std::int32_t end = End(rest);
      const std::uint64_t taken = from_end ? Packed(next, end - count) : Packed(next + count, end);
      if (range.compare_exchange_weak(rest, taken, std::memory_order_acq_rel,
                                      std::memory_order_relaxed)) {
        return {from_end ? end - count : next, count};
      }
    }
    return {};
  }

  const std::int32_t size_;
  const std::unique_ptr<Range[]> ranges_;
};

}  // namespace rollouts
