// SPDX-License-Identifier: Apache-2.0
// The worker threads of a Scheduler: how they start, wait for work and end.
#include <string>
#include <system_error>

#include "rollouts/pool/placement.h"
#include "rollouts/pool/scheduler.h"
#include "rollouts/support/errors.h"
#include "timing.h"

namespace rollouts {

// Every thread makes the environments that it will step, so that their memory is near it.
void Scheduler::Start() {
  std::vector<std::future<void>> made;
  try {
    for (std::int32_t worker = 0; worker < num_workers_; ++worker) {
      std::promise<void> promise;
      made.push_back(promise.get_future());
      threads_.emplace_back([this, worker, promise = std::move(promise)]() mutable {
        if (MakeOwn(worker, promise)) WorkerLoop(worker);
      });
    }
  } catch (const std::system_error& error) {
    throw SpecError("could not start " + std::to_string(num_workers_) + " threads, only " +
                    std::to_string(threads_.size()) + " (" + error.what() +
                    "); ask for less num_threads");
  }
  // the caller of a synchronous Recv is one of the threads, with a range of its own
  if (synchronous_) runner_.MakeEnvs(ranges_.Own(CallerParticipant()));
  // throws again the exception of a thread that could not make its environments
  for (std::future<void>& future : made) future.get();
}

// Called on the worker's own thread. False when it cannot work: `made` then has the exception.
bool Scheduler::MakeOwn(std::int32_t worker, std::promise<void>& made) {
  try {
    // pinned before the first write, which decides where the memory's pages lie
    if (!pin_cpus_.empty()) PinThisThread(pin_cpus_[worker]);
    runner_.MakeEnvs(ranges_.Own(WorkerParticipant(worker)));
  } catch (...) {
    made.set_exception(std::current_exception());
    return false;
  }
  made.set_value();
  return true;
}

void Scheduler::WorkerLoop(std::int32_t worker) {
  const std::int32_t participant = WorkerParticipant(worker);
  // the last worker wakes only for long queues, because the caller of Recv works in its place
  const bool in_reserve = reserve_ && worker == num_workers_ - 1;
  Event& event = in_reserve ? reserve_event_ : work_event_;
  const std::int64_t least = in_reserve ? reserve_limit_ : 0;
  const auto has_work = [&] { return stopped() || !ranges_.Empty() || queue_.size() > least; };
  while (true) {
    // the hour is arbitrary: waking without work does no harm
    event.WaitUntil(has_work, Clock::now() + std::chrono::hours(1), kSpin);
    if (stopped()) return;
    RunOne(participant);
  }
}

void Scheduler::Join() {
  work_event_.Notify();
  reserve_event_.Notify();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  threads_.clear();
}

void Scheduler::Abandon() {
  // destroying a thread that was not joined would end the process
  if (!threads_.empty()) new std::vector<std::thread>(std::move(threads_));
}

}  // namespace rollouts
