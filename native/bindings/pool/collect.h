// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "bindings/policy/policy.h"
#include "rollouts/pool/cpu_pool.h"

namespace rollouts {

// Writes a rollout into `arrays`, a dict of the names in policy::RolloutArrays. Returns the final
// observations (E, obs_bytes) uint8 of the episodes that ended, by t and environment, or None
// where they are not kept. Holds the GIL only to look at signals, and to call `poll` if it is not
// None; what that raises ends the rollout.
pybind11::object CollectRollout(CpuPool& pool, const PyPolicy& policy,
                                const pybind11::dict& arrays, bool keep_final_obs,
                                const pybind11::object& poll);

}  // namespace rollouts
