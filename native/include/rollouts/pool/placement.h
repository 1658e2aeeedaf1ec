// SPDX-License-Identifier: Apache-2.0
// The CPU that a thread runs on.
#pragma once

#include <cstdint>

namespace rollouts {

// Keeps the calling thread on one CPU. Throws SpecError when the system refuses: the CPU is not in
// the process' affinity mask, or the system is not Linux.
void PinThisThread(std::int32_t cpu);

}  // namespace rollouts
