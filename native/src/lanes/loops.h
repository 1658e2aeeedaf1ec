// SPDX-License-Identifier: Apache-2.0
// The loops of one width, as functions that step.cpp chooses among.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rollouts/lanes/step.h"

namespace rollouts::lanes {

// A thread's numbers of a vector's models, which mostly are variants of one: what was written for the
// vector before is written over where the next one differs.
struct MixedNumbers {
  double* numbers = nullptr;         // a vector for each number of the model
  std::uint32_t* changed = nullptr;  // places where they are not the root's; room for all
  std::uint8_t* is_changed = nullptr;
  std::size_t num_changed = 0;
  std::uint64_t root = 0;            // serial number; 0: what `numbers` holds is of no use
  std::int32_t width = 0;
};

struct Loops {
  std::int32_t width;
  std::size_t (*memory_bytes)(const Model& model);
  // `models`: one for each lane, of equal structures. `memory` is aligned to 64 bytes; `mixed` has room
  // where the models are several. Both return the rows, as bits, that were left as they were, and in the
  // upper half those of them that a single lane would step.
  unsigned (*step)(const Model* const* models, MixedNumbers& mixed, std::uint8_t* memory, const Row* rows,
                   int count, const StepOptions& options);
  unsigned (*forward)(const Model* const* models, MixedNumbers& mixed, std::uint8_t* memory,
                      const Row* rows, const Probe* probes, int count);
};

// Null where this build or this machine has none.
const Loops* Avx512Loops();
const Loops* Avx2Loops();
const Loops* Avx2SingleLoops();
const Loops* PairLoops();
const Loops* SingleLoops();

}  // namespace rollouts::lanes
