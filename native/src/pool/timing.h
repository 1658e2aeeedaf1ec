// SPDX-License-Identifier: Apache-2.0
// Times that decide who works, and how long a thread waits awake.
#pragma once

#include <chrono>
#include <cstdint>

namespace rollouts {

// The time that a thread spins before it parks: longer than the Python code between
// two steps, shorter than a policy's inference.
inline constexpr std::chrono::microseconds kSpin{30};
// Rounds of sends that are cheaper than this run on the caller alone.
inline constexpr std::int64_t kInlineNs = 8'000;
// Asynchronous, the caller works in recv as one of num_threads, so that the last thread
// joins for no less than this.
inline constexpr std::int64_t kReserveNs = 50'000;
// A chunk is worth claiming when it computes this long.
inline constexpr std::int64_t kChunkNs = 2'000;
// Least cost of a step, where an engine steps several environments at once, that is worth a
// thread that wakes for it.
inline constexpr std::int64_t kGroupNs = 40'000;

}  // namespace rollouts
