// SPDX-License-Identifier: Apache-2.0
// Failures of a pool's environments, until they are reported to its caller.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rollouts/support/mutex.h"

namespace rollouts {

struct Failure {
  std::int32_t env_id;  // global
  std::string message;
};

// Any thread may call any function. Costs one atomic load where nothing failed.
class FailureLog {
 public:
  void Add(Failure failure);

  // Throws EnvError, which names all failures, and forgets them; returns where there are none.
  void ThrowIfAny();

  // Takes the failures of these environments; other failures stay.
  std::vector<Failure> TakeOf(std::span<const std::int32_t> env_ids);

  void Clear();

 private:
  Mutex mutex_;
  std::vector<Failure> failures_ ROLLOUTS_GUARDED_BY(mutex_);
  std::atomic<bool> any_{false};  // written with mutex_ held
};

}  // namespace rollouts
