// SPDX-License-Identifier: Apache-2.0
// The loops over blocks of environments, compiled with vector instructions. CMakeLists.txt
// gives this file options without which they do not vectorise.
#include "rollouts/pool/block.h"

#include <limits>

#include "registry_light_includes.inc"
#include "support/clones.h"

namespace rollouts {

// one function for each type, because target_clones works on plain functions only
#define ROLLOUTS_LIGHT_LOOPS(TYPE, NAME, CONFIGS)                                              \
  ROLLOUTS_CLONES void Step##NAME##Block(const CONFIGS& configs, EnvBlock<TYPE>& block,        \
                                         std::int32_t count) {                                 \
    StepBlock<TYPE>(configs, block, count);                                                    \
  }                                                                                            \
  ROLLOUTS_CLONES void Observe##NAME##Block(const CONFIGS& configs,                            \
                                            const EnvBlock<TYPE>& block, std::int32_t count,   \
                                            TYPE::Obs* obs) {                                  \
    ObserveBlock<TYPE>(configs, block, count, obs);                                            \
  }                                                                                            \
  ROLLOUTS_CLONES void Tell##NAME##Block(const CONFIGS& configs,                               \
                                         const EnvBlock<TYPE>& block, std::int32_t count,      \
                                         void* const* columns, std::int64_t first_row) {       \
    TellBlock<TYPE>(configs, block, count, columns, first_row);                                \
  }
#define ROLLOUTS_TYPE(TYPE)                                                                    \
  ROLLOUTS_LIGHT_LOOPS(TYPE, TYPE, SameConfig<TYPE>)                                           \
  ROLLOUTS_LIGHT_LOOPS(TYPE, Each##TYPE, ConfigLanes<TYPE>)                                    \
  BlockKernels<TYPE> BestKernels(const TYPE::Config&) {                                        \
    return {Step##TYPE##Block,     Observe##TYPE##Block,     Tell##TYPE##Block,                \
            StepEach##TYPE##Block, ObserveEach##TYPE##Block, TellEach##TYPE##Block};           \
  }
#include "registry_vectorized_types.inc"
#undef ROLLOUTS_TYPE
#undef ROLLOUTS_LIGHT_LOOPS

ROLLOUTS_CLONES void DrawBlocks(Draws& draws, std::int32_t count) { DrawAll(draws, count); }

}  // namespace rollouts
