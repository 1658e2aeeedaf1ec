// The dials of a vault, in a file of their own.
#pragma once

#include "rollouts/core/platform.h"

namespace games {

inline constexpr std::int32_t kDials = 3;
inline constexpr std::int32_t kDigits[kDials] = {4, 3, 5};

}  // namespace games
