// SPDX-License-Identifier: Apache-2.0
// Functions newer than glibc 2.28 that the module or libstdc++'s static library needs. Part of
// portable wheels only (portable.cmake); hidden from other libraries.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {

constexpr long kSecond_ns = 1'000'000'000;

using CondClockWait = int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
using MutexClockLock = int(pthread_mutex_t*, clockid_t, const timespec*);

// Returns the system's own function if it has one, because only that one is unaffected by jumps of
// the wall clock.
template <typename Function>
Function* OfSystem(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

// The moment of the wall clock that is as far away as `deadline` is on `clock`.
timespec OnWallClock(clockid_t clock, const timespec& deadline) {
  timespec now{};
  timespec wall{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &wall);
  wall.tv_sec += deadline.tv_sec - now.tv_sec;
  wall.tv_nsec += deadline.tv_nsec - now.tv_nsec;
  if (wall.tv_nsec < 0) {
    wall.tv_nsec += kSecond_ns;
    --wall.tv_sec;
  } else if (wall.tv_nsec >= kSecond_ns) {
    wall.tv_nsec -= kSecond_ns;
    ++wall.tv_sec;
  }
  return wall;
}

}  // namespace

#define ROLLOUTS_STAND_IN extern "C" __attribute__((visibility("hidden")))

// glibc 2.32. False: shared pointers always count with atomics.
ROLLOUTS_STAND_IN char __libc_single_threaded;
char __libc_single_threaded = 0;

// glibc 2.30. Callers check their condition and clock again after each wake-up.
ROLLOUTS_STAND_IN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                             clockid_t clock, const timespec* deadline) {
  static auto* const system = OfSystem<CondClockWait>("pthread_cond_clockwait");
  if (system != nullptr) return system(condition, mutex, clock, deadline);
  const timespec wall = OnWallClock(clock, *deadline);
  return pthread_cond_timedwait(condition, mutex, &wall);
}

// glibc 2.30. Callers check the clock again when it returns early.
ROLLOUTS_STAND_IN int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                                              const timespec* deadline) noexcept {
  static auto* const system = OfSystem<MutexClockLock>("pthread_mutex_clocklock");
  if (system != nullptr) return system(mutex, clock, deadline);
  const timespec wall = OnWallClock(clock, *deadline);
  return pthread_mutex_timedlock(mutex, &wall);
}

// glibc 2.33; earlier headers turned them into calls of __xstat and __lxstat. The kernel's struct
// equals glibc's on both architectures.
ROLLOUTS_STAND_IN int stat(const char* path, struct stat* result) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, result, 0));
}
ROLLOUTS_STAND_IN int lstat(const char* path, struct stat* result) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, result, AT_SYMLINK_NOFOLLOW));
}
