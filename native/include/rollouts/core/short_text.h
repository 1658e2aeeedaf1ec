// SPDX-License-Identifier: Apache-2.0
// A short text as plain data, for options that are passed to kernels too.
#pragma once

#include "rollouts/core/platform.h"

namespace rollouts {

struct ShortText {
  static constexpr std::int32_t kSize = 64;  // including the final zero

  ROLLOUTS_HD constexpr ShortText(const char* text) {
    for (std::int32_t i = 0; i < kSize - 1 && text[i]; ++i) chars[i] = text[i];
  }
  char chars[kSize] = {};
};

}  // namespace rollouts
