// SPDX-License-Identifier: Apache-2.0
// Starting the threads of a CpuPool; cpu_pool.cpp has what they do then.
#include <system_error>

#include "rollouts/pool/cpu_pool.h"
#include "rollouts/pool/placement.h"

namespace rollouts {

// Every thread makes the environments it will step, so that their memory is near it.
void CpuPool::StartWorkers() {
  const std::int32_t workers = NumWorkers(options_);
  std::vector<std::future<void>> made;
  try {
    for (std::int32_t worker = 0; worker < workers; ++worker) {
      std::promise<void> promise;
      made.push_back(promise.get_future());
      threads_.emplace_back([this, worker, promise = std::move(promise)]() mutable {
        if (StartWorker(worker, promise)) WorkerLoop(worker);
      });
    }
  } catch (const std::system_error& error) {
    throw SpecError("could not start " + std::to_string(workers) + " threads, only " +
                    std::to_string(threads_.size()) + " (" + error.what() +
                    "); ask for less num_threads");
  }
  // the caller of Recv is one of the threads, and has a range of its own
  if (synchronous()) MakeEnvs(CallerParticipant());
  // rethrows here what a thread could not make
  for (std::future<void>& future : made) future.get();
}

void CpuPool::MakeEnvs(std::int32_t participant) {
  const auto [first, count] = ranges_.Own(participant);
  envs_->Make(first, count);
  for (std::int32_t env = first; env < first + count; ++env) {
    EpisodeClock& clock = envs_->clock(env);
    clock.env_id = static_cast<std::uint32_t>(env + options_.env_id_offset);
    clock.Seed(options_.seed);
  }
}

// On the worker's own thread; false when it cannot work, and `made` says why.
bool CpuPool::StartWorker(std::int32_t worker, std::promise<void>& made) {
  try {
    // before the first write: pages lie where their thread runs then
    if (!options_.pin_cpus.empty()) PinThisThread(options_.pin_cpus[worker]);
    MakeEnvs(WorkerParticipant(worker));
  } catch (...) {
    made.set_exception(std::current_exception());
    return false;
  }
  made.set_value();
  return true;
}

}  // namespace rollouts
