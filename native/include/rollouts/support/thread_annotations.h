// SPDX-License-Identifier: Apache-2.0
// Tells which lock guards what, as clang's -Wthread-safety reads it; nothing for other compilers.
#pragma once

#if defined(__clang__)
#define ROLLOUTS_ANNOTATE(...) __attribute__((__VA_ARGS__))
#else
#define ROLLOUTS_ANNOTATE(...)
#endif

// Types: a lock, and what holds one for a scope.
#define ROLLOUTS_CAPABILITY(name) ROLLOUTS_ANNOTATE(capability(name))
#define ROLLOUTS_SCOPED_CAPABILITY ROLLOUTS_ANNOTATE(scoped_lockable)

// Members: read and written with the lock held; a lock that is taken after others.
#define ROLLOUTS_GUARDED_BY(lock) ROLLOUTS_ANNOTATE(guarded_by(lock))
#define ROLLOUTS_ACQUIRED_AFTER(...) ROLLOUTS_ANNOTATE(acquired_after(__VA_ARGS__))

// Functions: called with the lock held, or they take it, or give it back.
#define ROLLOUTS_REQUIRES(...) ROLLOUTS_ANNOTATE(requires_capability(__VA_ARGS__))
#define ROLLOUTS_ACQUIRE(...) ROLLOUTS_ANNOTATE(acquire_capability(__VA_ARGS__))
#define ROLLOUTS_RELEASE(...) ROLLOUTS_ANNOTATE(release_capability(__VA_ARGS__))
// Marks code that clang cannot follow; the place says why it is right.
#define ROLLOUTS_UNCHECKED ROLLOUTS_ANNOTATE(no_thread_safety_analysis)
