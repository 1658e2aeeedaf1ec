// SPDX-License-Identifier: Apache-2.0
// Compiles one function body for several instruction sets; the loader picks the best that the
// machine has. Without fused multiply-add contraction all of them give the same bits. The body is
// compiled with `flatten`, because a call left in the loop prevents the vectorisation.
// ThreadSanitizer gets one body: its run-time is not initialised yet when the loader picks.
#pragma once

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__)
#define ROLLOUTS_CLONES \
  __attribute__((flatten, target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ROLLOUTS_CLONES __attribute__((flatten))
#endif
