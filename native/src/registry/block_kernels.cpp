// SPDX-License-Identifier: Apache-2.0
// The loops over blocks of environments, compiled with vector instructions. CMakeLists.txt
// gives this file options without which they do not vectorise.
#include "rollouts/pool/block.h"

#include <limits>

#include "registry_light_includes.inc"
#include "support/clones.h"

namespace rollouts {

// target_clones works on plain functions only, so each type has its own
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

ROLLOUTS_CLONES void DrawBlocks(Draws& draws, std::int32_t count) {
#pragma GCC ivdep
  for (std::int32_t i = 0; i < count; ++i) {
    const PhiloxBlock counter{{draws.index[i], draws.stream_id[i], draws.episode[i], 0}};
    const PhiloxBlock block = Philox4x32(counter, draws.key0[i], draws.key1[i]);
    // the words that were taken before go; masks, because a branch would not vectorise
    const std::uint32_t gone = 4 - static_cast<std::uint32_t>(draws.left[i]);
    const std::uint32_t one = 0 - (gone & 1);
    const std::uint32_t two = 0 - (gone >> 1);
    const std::uint32_t word0 = (block.word[0] & ~one) | (block.word[1] & one);
    const std::uint32_t word1 = (block.word[1] & ~one) | (block.word[2] & one);
    const std::uint32_t word2 = (block.word[2] & ~one) | (block.word[3] & one);
    draws.word[0][i] = (word0 & ~two) | (word2 & two);
    draws.word[1][i] = (word1 & ~two) | (block.word[3] & two);
    draws.word[2][i] = word2;
    draws.word[3][i] = block.word[3];
  }
}

}  // namespace rollouts
