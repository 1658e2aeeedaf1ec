// SPDX-License-Identifier: Apache-2.0
// replay/worker_threads.h: loops that threads share.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "rollouts/replay/worker_threads.h"
#include "units.h"

namespace rollouts::replay {
namespace {

std::int64_t Sum(WorkerThreads& workers) {
  std::atomic<std::int64_t> sum{0};
  workers.For(100, 1, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; ++begin) sum += begin;
  });
  return sum.load();
}

TEST(WorkerThreads, ThreadsThatSpinMissNoLoop) {
  for (const std::chrono::microseconds spin : {std::chrono::microseconds{0}, std::chrono::microseconds{20}}) {
    WorkerThreads workers(3, spin);
    for (int loop = 0; loop < 2000; ++loop) CHECK_EQ(Sum(workers), 4950);
  }
}

TEST(WorkerThreads, ForkedChildRunsAloneAndDropsThem) {
  auto workers = std::make_unique<WorkerThreads>(3);
  CHECK_EQ(Sum(*workers), 4950);
  const pid_t child = fork();
  if (child == 0) {
    // a child that hangs is killed
    alarm(60);
    const bool is_whole = Sum(*workers) == 4950;
    workers.reset();
    _exit(is_whole ? 0 : 1);
  }
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  CHECK_EQ(Sum(*workers), 4950);
}

}  // namespace
}  // namespace rollouts::replay
