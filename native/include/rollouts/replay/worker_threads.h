// SPDX-License-Identifier: Apache-2.0
// A few threads that copy rows.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace rollouts::replay {

// Runs loops in parallel, the caller being one of the threads. Thread-safe: a call that finds
// the threads at work for another one runs alone.
class WorkerThreads {
 public:
  // num_threads counts the caller; 1 starts none. Throws SpecError where the system starts no more.
  explicit WorkerThreads(std::int32_t num_threads);
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  // Calls body(begin, end) for ranges of at most `grain` that make up [0, count), and returns
  // when all are done. The body must not throw.
  using Body = std::function<void(std::int64_t begin, std::int64_t end)>;
  void For(std::int64_t count, std::int64_t grain, const Body& body);

 private:
  void Join();
  void Run();
  void TakeRanges();

  std::mutex callers_;  // held by the caller whose loop it is; before mutex_

  std::mutex mutex_;  // guards the next five, and publishes the loop to the threads
  std::condition_variable started_;
  std::condition_variable finished_;
  std::uint64_t round_ = 0;
  std::int32_t at_work_ = 0;
  bool ending_ = false;

  const Body* body_ = nullptr;  // this round's, as the next two; written before it starts
  std::int64_t count_ = 0;
  std::int64_t grain_ = 1;
  std::atomic<std::int64_t> next_{0};
  std::vector<std::thread> threads_;
};

}  // namespace rollouts::replay
