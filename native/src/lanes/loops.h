// SPDX-License-Identifier: Apache-2.0
// The loops for one vector width, as functions that step.cpp chooses among.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rollouts/lanes/step.h"

namespace rollouts::lanes {

// A thread's copy of the numbers of the models in the lanes of a vector. Mostly they are variants
// of one model: from one vector to the next, only the numbers that differ are written again.
struct MixedNumbers {
  double* numbers = nullptr;         // a vector for each number of the model
  std::uint32_t* changed = nullptr;  // places where a number differs from the root; room for all
  std::uint8_t* is_changed = nullptr;
  std::size_t num_changed = 0;
  std::uint64_t root = 0;            // serial number; 0: `numbers` is unset
  std::int32_t width = 0;
};

struct Loops {
  std::int32_t width;
  std::size_t (*memory_bytes)(const Model& model);
  // `models`: one for each lane, of equal structures. `memory` is aligned to 64 bytes; `mixed` has
  // room if the models differ. Both functions return bits: in the lower half, the rows that were
  // left unchanged; in the upper half, those of them that can be stepped in a single lane.
  unsigned (*step)(const Model* const* models, MixedNumbers& mixed, std::uint8_t* memory, const Row* rows,
                   int count, const StepOptions& options);
  unsigned (*forward)(const Model* const* models, MixedNumbers& mixed, std::uint8_t* memory,
                      const Row* rows, const Probe* probes, int count);
};

// Null where this build or this machine has no AVX-512.
const Loops* Avx512Loops();
const Loops* Avx2Loops();
const Loops* Avx2SingleLoops();
const Loops* PairLoops();
const Loops* SingleLoops();

}  // namespace rollouts::lanes
