// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/worker_threads.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "rollouts/support/errors.h"
#include "rollouts/support/event.h"

namespace rollouts::replay {
namespace {

// The length of one wait, which is repeated: some standard libraries overflow on an infinite
// deadline.
constexpr std::chrono::hours kHour{1};

}  // namespace

// The threads other than the caller, and the loop that they share.
class WorkerThreads::Crew {
 public:
  Crew(std::int32_t num_others, std::chrono::microseconds spin);
  ~Crew() { Join(); }

  // Tells if the threads belong to this process, and not to the one that it was forked from.
  bool is_here() const { return getpid() == pid_; }
  void For(std::int64_t count, std::int64_t grain, const Body& body);

 private:
  void Join();
  void Run();
  void TakeRanges();

  const pid_t pid_ = getpid();
  const std::chrono::microseconds spin_;

  Event started_;
  Event finished_;
  // storing it with release publishes the loop to the threads
  std::atomic<std::uint64_t> round_{0};
  // the threads' decrements publish their results to the caller
  std::atomic<std::int32_t> at_work_{0};
  std::atomic<bool> ending_{false};

  const Body* body_ = nullptr;  // for this round, as are the next two; written before it starts
  std::int64_t count_ = 0;
  std::int64_t grain_ = 1;
  std::atomic<std::int64_t> next_{0};
  std::vector<std::thread> threads_;
};

WorkerThreads::WorkerThreads(std::int32_t num_threads, std::chrono::microseconds spin)
    : num_threads_(num_threads), spin_(spin) {}

WorkerThreads::~WorkerThreads() {
  // a forked child cannot join the threads, and destroying a condition would wait for the parent's
  // threads: the crew stays in memory
  if (crew_ && !crew_->is_here()) static_cast<void>(crew_.release());
}

void WorkerThreads::Start() {
  const std::lock_guard<std::mutex> lock(callers_);
  if (num_threads_ > 1 && !crew_) crew_ = std::make_unique<Crew>(num_threads_ - 1, spin_);
}

void WorkerThreads::For(std::int64_t count, std::int64_t grain, const Body& body) {
  // does not wait for another caller's loop, but runs alone then
  std::unique_lock<std::mutex> caller(callers_, std::defer_lock);
  if (num_threads_ > 1 && count > grain && caller.try_lock()) {
    if (!crew_) crew_ = std::make_unique<Crew>(num_threads_ - 1, spin_);
    if (crew_->is_here()) return crew_->For(count, grain, body);
  }
  if (count > 0) body(0, count);
}

WorkerThreads::Crew::Crew(std::int32_t num_others, std::chrono::microseconds spin) : spin_(spin) {
  try {
    for (std::int32_t i = 0; i < num_others; ++i) threads_.emplace_back([this] { Run(); });
  } catch (const std::system_error& error) {
    const std::size_t started = threads_.size();
    // destroying threads that were not joined would end the process
    Join();
    throw SpecError("could not start " + std::to_string(num_others) + " threads, only " +
                    std::to_string(started) + " (" + error.what() + "); ask for less num_threads");
  }
}

void WorkerThreads::Crew::Join() {
  ending_.store(true, std::memory_order_release);
  started_.Notify();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerThreads::Crew::For(std::int64_t count, std::int64_t grain, const Body& body) {
  body_ = &body;
  count_ = count;
  grain_ = grain;
  next_.store(0, std::memory_order_relaxed);
  // all threads report back, including those that find nothing left: nobody reads `body` after that
  at_work_.store(static_cast<std::int32_t>(threads_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  started_.Notify();
  // the caller is one of the threads
  TakeRanges();
  const auto is_done = [this] { return at_work_.load(std::memory_order_acquire) == 0; };
  while (!finished_.WaitUntil(is_done, Event::Clock::now() + kHour, spin_)) continue;
}

void WorkerThreads::Crew::TakeRanges() {
  for (;;) {
    // relaxed, because the round published the loop, and at_work_ publishes the results
    const std::int64_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (begin >= count_) return;
    (*body_)(begin, std::min(begin + grain_, count_));
  }
}

void WorkerThreads::Crew::Run() {
  // rounds are numbered, so that a thread neither misses one nor runs it twice
  std::uint64_t seen = 0;
  const auto is_called = [&] {
    return ending_.load(std::memory_order_acquire) ||
           round_.load(std::memory_order_acquire) != seen;
  };
  for (;;) {
    while (!started_.WaitUntil(is_called, Event::Clock::now() + kHour, spin_)) continue;
    if (ending_.load(std::memory_order_acquire)) return;
    ++seen;
    TakeRanges();
    if (at_work_.fetch_sub(1, std::memory_order_acq_rel) == 1) finished_.Notify();
  }
}

}  // namespace rollouts::replay
