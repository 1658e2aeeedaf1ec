// SPDX-License-Identifier: Apache-2.0
// Actions as callers give them, checked on their way into the rows that environments read.
#pragma once

#include <cstdint>

namespace rollouts {

// Copies `count` actions; false if one of them is not in [0, n), even though it was copied.
bool CopyDiscrete(const std::int32_t* from, std::int64_t count, std::int32_t n, std::int32_t* to);
bool CopyDiscrete(const std::int64_t* from, std::int64_t count, std::int32_t n, std::int32_t* to);

// Copies `count` numbers; false if one of them is not finite, even though it was copied.
bool CopyFinite(const float* from, std::int64_t count, float* to);

}  // namespace rollouts
