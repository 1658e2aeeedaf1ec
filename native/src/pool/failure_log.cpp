// SPDX-License-Identifier: Apache-2.0
#include "rollouts/pool/failure_log.h"

#include <algorithm>
#include <utility>

#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

// The most failures shown: with more, a pool whose environments all fail would fill the screen.
constexpr std::size_t kMostShown = 4;

}  // namespace

void FailureLog::Add(Failure failure) {
  const MutexLock lock(mutex_);
  failures_.push_back(std::move(failure));
  any_.store(true, std::memory_order_release);
}

void FailureLog::ThrowIfAny() {
  // the usual case, without a lock
  if (!any_.load(std::memory_order_acquire)) return;
  const MutexLock lock(mutex_);
  // reported once: the next recv delivers the batch
  any_.store(false, std::memory_order_relaxed);
  std::string message = std::to_string(failures_.size()) + " environment(s) failed: ";
  for (std::size_t i = 0; i < failures_.size() && i < kMostShown; ++i) {
    message += (i ? "; env_id " : "env_id ") + std::to_string(failures_[i].env_id) + ": " +
               failures_[i].message;
  }
  failures_.clear();
  throw EnvError(message +
                 ". The other environments go on: the next recv returns the batch, in which the "
                 "failed ones are truncated; they continue with a new episode");
}

std::vector<Failure> FailureLog::TakeOf(std::span<const std::int32_t> env_ids) {
  std::vector<Failure> taken;
  if (!any_.load(std::memory_order_acquire)) return taken;
  const MutexLock lock(mutex_);
  std::erase_if(failures_, [&](Failure& failure) {
    const bool here = std::find(env_ids.begin(), env_ids.end(), failure.env_id) != env_ids.end();
    if (here) taken.push_back(std::move(failure));
    return here;
  });
  // failures of rows that were not received yet stay
  any_.store(!failures_.empty(), std::memory_order_relaxed);
  return taken;
}

void FailureLog::Clear() {
  const MutexLock lock(mutex_);
  failures_.clear();
  any_.store(false, std::memory_order_relaxed);
}

}  // namespace rollouts
