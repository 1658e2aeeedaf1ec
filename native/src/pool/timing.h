// SPDX-License-Identifier: Apache-2.0
// Times that decide which thread works, and how long a thread spins before it parks.
#pragma once

#include <chrono>
#include <cstdint>

namespace rollouts {

// The time that a thread spins before it parks: longer than the Python code between
// two steps, shorter than a policy's inference.
inline constexpr std::chrono::microseconds kSpin{30};
// A round of sends that is cheaper than this runs on the caller alone.
inline constexpr std::int64_t kInlineNs = 8'000;
// The caller of an asynchronous recv works as one of num_threads, so that the last thread
// joins only for at least this much work.
inline constexpr std::int64_t kReserveNs = 50'000;
// The computing time from which a chunk is worth a claim.
inline constexpr std::int64_t kChunkNs = 2'000;
// The least cost of a step that is worth waking a thread for, where an engine steps several
// environments at once.
inline constexpr std::int64_t kGroupNs = 40'000;

}  // namespace rollouts
