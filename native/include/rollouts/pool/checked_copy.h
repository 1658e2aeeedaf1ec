// SPDX-License-Identifier: Apache-2.0
// Discrete actions as callers give them, into the int32 that environments read.
#pragma once

#include <cstdint>

namespace rollouts {

// Copies `count` actions; false if one of them is not in [0, n), wherever it was copied.
bool CopyDiscrete(const std::int32_t* from, std::int64_t count, std::int32_t n, std::int32_t* to);
bool CopyDiscrete(const std::int64_t* from, std::int64_t count, std::int32_t n, std::int32_t* to);

}  // namespace rollouts
