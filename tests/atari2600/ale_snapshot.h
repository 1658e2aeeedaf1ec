// SPDX-License-Identifier: Apache-2.0
// The console in ALE's serialized state, as our own console. The layout was found by
// looking at such states: little-endian int32 throughout, texts behind their length.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "rollouts/atari2600/console.h"

namespace rollouts {

// Sets `console` to a state of ALE with the same ROM. Its board's kind, first line and height follow
// from the state, too; its screens and ROM are left as they are. Whether the last frame was
// unfinished is not part of the state.
// Throws EngineError for bytes that are not such a state.
void ReadAleSnapshot(std::string_view serialized, atari2600::Console& console);

}  // namespace rollouts
