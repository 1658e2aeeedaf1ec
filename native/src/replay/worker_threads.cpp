// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/worker_threads.h"

#include <algorithm>
#include <string>
#include <system_error>

#include "rollouts/support/errors.h"

namespace rollouts::replay {

WorkerThreads::WorkerThreads(std::int32_t num_threads) {
  try {
    for (std::int32_t i = 1; i < num_threads; ++i) threads_.emplace_back([this] { Run(); });
  } catch (const std::system_error& error) {
    const std::size_t started = threads_.size();
    // destroying threads that were not joined would end the process
    Join();
    throw SpecError("could not start " + std::to_string(num_threads - 1) + " threads, only " +
                    std::to_string(started) + " (" + error.what() + "); ask for less num_threads");
  }
}

WorkerThreads::~WorkerThreads() { Join(); }

void WorkerThreads::Join() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // under the mutex, or a thread that is about to wait would miss it
    ending_ = true;
  }
  started_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerThreads::For(std::int64_t count, std::int64_t grain, const Body& body) {
  // does not wait for another caller's loop: it copies alone then
  std::unique_lock<std::mutex> caller(callers_, std::try_to_lock);
  if (threads_.empty() || count <= grain || !caller) {
    if (count > 0) body(0, count);
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    body_ = &body;
    count_ = count;
    grain_ = grain;
    next_.store(0, std::memory_order_relaxed);
    // all report back, also those that find nothing left: nobody reads `body` after that
    at_work_ = static_cast<std::int32_t>(threads_.size());
    ++round_;
  }
  started_.notify_all();
  // the caller is one of the threads
  TakeRanges();
  std::unique_lock<std::mutex> lock(mutex_);
  finished_.wait(lock, [this] { return at_work_ == 0; });
}

void WorkerThreads::TakeRanges() {
  for (;;) {
    // relaxed: mutex_ published the loop, and publishes what was done
    const std::int64_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (begin >= count_) return;
    (*body_)(begin, std::min(begin + grain_, count_));
  }
}

void WorkerThreads::Run() {
  // rounds are numbered, so that none is missed or done twice
  std::uint64_t seen = 0;
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      started_.wait(lock, [&] { return ending_ || round_ != seen; });
      if (ending_) return;
      seen = round_;
    }
    TakeRanges();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--at_work_ == 0) finished_.notify_one();
  }
}

}  // namespace rollouts::replay
