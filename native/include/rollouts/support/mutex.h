// SPDX-License-Identifier: Apache-2.0
// std::mutex with the annotations that clang's -Wthread-safety needs; the standard library's has
// none.
#pragma once

#include <mutex>

#include "rollouts/support/thread_annotations.h"

namespace rollouts {

class ROLLOUTS_CAPABILITY("mutex") Mutex {
 public:
  void Lock() ROLLOUTS_ACQUIRE() { mutex_.lock(); }
  void Unlock() ROLLOUTS_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

// Holds a mutex for a scope.
class ROLLOUTS_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ROLLOUTS_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() ROLLOUTS_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace rollouts
