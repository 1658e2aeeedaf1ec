// SPDX-License-Identifier: Apache-2.0
// Declares which lock guards what, for clang's -Wthread-safety; empty for other compilers.
#pragma once

#if defined(__clang__)
#define ROLLOUTS_ANNOTATE(...) __attribute__((__VA_ARGS__))
#else
#define ROLLOUTS_ANNOTATE(...)
#endif

// For types: a lock, and an object that holds a lock for a scope.
#define ROLLOUTS_CAPABILITY(name) ROLLOUTS_ANNOTATE(capability(name))
#define ROLLOUTS_SCOPED_CAPABILITY ROLLOUTS_ANNOTATE(scoped_lockable)

// For members: read and written with the lock held; a lock that is taken after others.
#define ROLLOUTS_GUARDED_BY(lock) ROLLOUTS_ANNOTATE(guarded_by(lock))
#define ROLLOUTS_ACQUIRED_AFTER(...) ROLLOUTS_ANNOTATE(acquired_after(__VA_ARGS__))

// For functions: called with the lock held, or they take it, or release it.
#define ROLLOUTS_REQUIRES(...) ROLLOUTS_ANNOTATE(requires_capability(__VA_ARGS__))
#define ROLLOUTS_ACQUIRE(...) ROLLOUTS_ANNOTATE(acquire_capability(__VA_ARGS__))
#define ROLLOUTS_RELEASE(...) ROLLOUTS_ANNOTATE(release_capability(__VA_ARGS__))
// Marks code that clang cannot follow; a comment there gives the reason why it is right.
#define ROLLOUTS_UNCHECKED ROLLOUTS_ANNOTATE(no_thread_safety_analysis)
