// SPDX-License-Identifier: Apache-2.0
// Waiting for a condition that other threads make true with atomics.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace rollouts {

// One pause of a spinning core; cheap for its hyper-thread sibling.
inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins, then parks. Notify costs one fence and one load when nobody is parked.
//
// Memory order: the notifier writes its condition, then a seq_cst fence, then
// reads `parked_`; the waiter raises `parked_`, then a seq_cst fence, then
// reads the condition. One of the two sees the other, so no wake-up is lost.
class Event {
 public:
  using Clock = std::chrono::steady_clock;

  Event() = default;
  // No thread waits any more, except in a forked child, whose waiters stayed in the parent:
  // destroying the condition would wait for them for ever, so it is leaked.
  ~Event() {
    if (parked_.load(std::memory_order_relaxed) != 0) static_cast<void>(condition_.release());
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // Waits until `ready()` or `deadline`; returns the last `ready()`. Ways out:
  // the condition, the deadline. To close, make `ready()` true and Notify.
  template <typename Ready>
  bool WaitUntil(Ready&& ready, Clock::time_point deadline, std::chrono::microseconds spin) {
    if (ready()) return true;
    const auto spin_end = Clock::now() + spin;
    do {
      for (int i = 0; i < 32; ++i) {
        CpuRelax();
        if (ready()) return true;
      }
    } while (Clock::now() < spin_end);

    std::unique_lock lock(mutex_);
    parked_.fetch_add(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const bool result = condition_->wait_until(lock, deadline, ready);
    parked_.fetch_sub(1, std::memory_order_relaxed);
    return result;
  }

  // Wakes every parked waiter, which then checks its condition again. Never blocks for long.
  void Notify() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (parked_.load(std::memory_order_relaxed) == 0) return;
    { const std::lock_guard lock(mutex_); }
    condition_->notify_all();
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<std::condition_variable> condition_ = std::make_unique<std::condition_variable>();
  std::atomic<int> parked_{0};
};

}  // namespace rollouts
