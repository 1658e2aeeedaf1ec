// SPDX-License-Identifier: Apache-2.0
// Actions as callers give them, checked on their way into the rows that environments read.
#pragma once

#include <cstdint>

namespace rollouts {

// Copies `count` actions. Returns false if one of them is not in [0, n); that one is copied, too.
bool CopyDiscrete(const std::int32_t* from, std::int64_t count, std::int32_t n, std::int32_t* to);
bool CopyDiscrete(const std::int64_t* from, std::int64_t count, std::int32_t n, std::int32_t* to);

// Copies `count` numbers. Returns false if one of them is not finite; that one is copied, too.
bool CopyFinite(const float* from, std::int64_t count, float* to);

}  // namespace rollouts
