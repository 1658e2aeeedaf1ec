// SPDX-License-Identifier: Apache-2.0
// The queue between send and the worker threads: environment indices, claimed
// in chunks.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>

namespace rollouts {

// One producer at a time (the pool's send lock), many consumers, lock-free. Holds at most
// `capacity` indices; the pool never has more in flight.
class WorkQueue {
 public:
  struct Claim {
    std::int64_t position = 0;  // the first index, counted since construction
    std::int32_t count = 0;
  };

  explicit WorkQueue(std::int32_t capacity)
      // twice the capacity, so that entries that a slow consumer reads are not yet overwritten when
      // a fast one has drained the rest
      : mask_(std::bit_ceil(2 * static_cast<std::uint64_t>(capacity)) - 1),
        ring_(std::make_unique<std::atomic<std::int32_t>[]>(mask_ + 1)) {}

  // Adds indices; the caller wakes the consumers.
  void Push(std::span<const std::int32_t> envs) {
    std::int64_t tail = tail_.load(std::memory_order_relaxed);
    for (const std::int32_t env : envs) {
      ring_[tail++ & mask_].store(env, std::memory_order_relaxed);
    }
    tail_.store(tail, std::memory_order_release);
  }

  // Indices pushed since construction: the position of the next one.
  std::int64_t pushed() const { return tail_.load(std::memory_order_relaxed); }

  // Indices not claimed yet; exact for the producer while no consumer claims.
  std::int64_t size() const {
    const std::int64_t head = head_.load(std::memory_order_acquire);
    return tail_.load(std::memory_order_acquire) - head;
  }

  bool Empty() const { return size() <= 0; }

  // Takes up to out.size() indices; count 0 when there are none. Never blocks.
  Claim TryClaim(std::span<std::int32_t> out) {
    std::int64_t head = head_.load(std::memory_order_relaxed);
    while (true) {
      const std::int64_t available = tail_.load(std::memory_order_acquire) - head;
      if (available <= 0) return {};
      const auto count = static_cast<std::int32_t>(
          std::min<std::int64_t>(available, static_cast<std::int64_t>(out.size())));
      // copy before claiming: once claimed, the entries may be overwritten
      for (std::int32_t i = 0; i < count; ++i) {
        out[i] = ring_[(head + i) & mask_].load(std::memory_order_relaxed);
      }
      if (head_.compare_exchange_weak(head, head + count, std::memory_order_acq_rel,
                                      std::memory_order_relaxed)) {
        return {head, count};
      }
    }
  }

 private:
  const std::uint64_t mask_;
  const std::unique_ptr<std::atomic<std::int32_t>[]> ring_;
  alignas(64) std::atomic<std::int64_t> head_{0};  // moved by consumers
  alignas(64) std::atomic<std::int64_t> tail_{0};  // moved by the producer
};

}  // namespace rollouts
