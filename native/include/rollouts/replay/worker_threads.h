// SPDX-License-Identifier: Apache-2.0
// A few threads that copy rows.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

namespace rollouts::replay {

// Runs loops in parallel; the caller is one of the threads. Thread-safe: a call that finds the
// threads busy with another one runs alone. So does each call in a forked child, which does not
// have its parent's threads.
class WorkerThreads {
 public:
  // num_threads counts the caller. The other threads start with the first loop that they share. A
  // thread that waits, for a loop or for its end, spins for `spin` before it parks.
  explicit WorkerThreads(std::int32_t num_threads, std::chrono::microseconds spin = {});
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  // Starts the threads at once. Throws SpecError where the system starts no more threads.
  void Start();

  // Calls body(begin, end) for ranges of at most `grain` that make up [0, count), and returns when
  // all are done. The body must not throw. Throws as Start does, before anything was done.
  using Body = std::function<void(std::int64_t begin, std::int64_t end)>;
  void For(std::int64_t count, std::int64_t grain, const Body& body);

 private:
  class Crew;

  const std::int32_t num_threads_;
  const std::chrono::microseconds spin_;
  std::mutex callers_;  // held by the caller whose loop runs; locked before the crew's mutex
  std::unique_ptr<Crew> crew_;  // guarded by callers_; null before the first shared loop
};

}  // namespace rollouts::replay
