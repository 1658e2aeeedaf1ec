// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <vector>

#include "bindings/policy/policy.h"
#include "rollouts/pool/cpu_pool.h"

namespace rollouts {

// Writes rollouts into dicts with the names of policy::RolloutArrays. There is one dict for each
// policy, and one policy for each group of agents, or one for all environments. Returns, for each
// dict, the final observations (E, obs_bytes) uint8 of the episodes that ended, by t and row, or
// None where they are not kept. `rules` has values of policy::CollectRules by name; `returns` is
// (gamma, gae_lambda, 0), or (gamma, 1, n) for n-step returns. Holds the GIL only to check for
// signals, and to call `poll` if it is not None; an exception raised then ends the rollout.
// `normalize`: None, or a dict of bindings/pool/wrappers.h, which has the new counts afterwards.
pybind11::object CollectRollouts(CpuPool& pool, const std::vector<const PyPolicy*>& policies,
                                 const std::vector<pybind11::dict>& arrays,
                                 const pybind11::dict& rules, const pybind11::object& poll,
                                 pybind11::object normalize);

}  // namespace rollouts
