// SPDX-License-Identifier: Apache-2.0
// The loops of one width, as functions that step.cpp chooses among.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rollouts/lanes/step.h"

namespace rollouts::lanes {

struct Loops {
  std::int32_t width;
  std::size_t (*memory_bytes)(const Model& model);
  // `models`: one for each lane, of equal structures. `memory` is aligned to 64 bytes. Both return the
  // rows, as bits, that were left as they were, and in the upper half those of them that a single lane
  // would step.
  unsigned (*step)(const Model* const* models, std::uint8_t* memory, const Row* rows, int count,
                   const StepOptions& options);
  unsigned (*forward)(const Model* const* models, std::uint8_t* memory, const Row* rows, const Probe* probes,
                      int count);
};

// Null where this build or this machine has none.
const Loops* Avx512Loops();
const Loops* Avx2Loops();
const Loops* Avx2SingleLoops();
const Loops* PairLoops();
const Loops* SingleLoops();

}  // namespace rollouts::lanes
