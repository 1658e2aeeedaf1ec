// SPDX-License-Identifier: Apache-2.0
// The loops over a world's agents, compiled with vector instructions. CMakeLists.txt gives this file
// options without which they do not vectorise.
#include "registry_agents_includes.inc"
#include "rollouts/pool/multi_agent_batch.h"
#include "support/clones.h"

namespace rollouts {

// one function for each type, because target_clones works on plain functions only
#define ROLLOUTS_TYPE(TYPE)                                                                   \
  ROLLOUTS_CLONES void Step##TYPE(const WorldRef<TYPE>& world) {                              \
    AgentLoops<TYPE>::Phases<0>(world);                                                       \
  }                                                                                           \
  ROLLOUTS_CLONES void Observe##TYPE(const WorldRef<TYPE>& world, std::int32_t first,         \
                                     std::int32_t count, TYPE::Obs* obs, std::int64_t size) { \
    AgentLoops<TYPE>::Observe(world, first, count, obs, size);                                \
  }                                                                                           \
  AgentKernels<TYPE> BestKernels(const TYPE::Config&) { return {Step##TYPE, Observe##TYPE}; }
#include "registry_agents_types.inc"
#undef ROLLOUTS_TYPE

}  // namespace rollouts
