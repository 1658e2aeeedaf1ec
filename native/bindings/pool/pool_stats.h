// SPDX-License-Identifier: Apache-2.0
// A pool's counts and times for Python.
#pragma once

#include <pybind11/pybind11.h>

#include "rollouts/pool/cpu_pool.h"

namespace rollouts {

// The dict from which rollouts/envs/stats.py makes a PoolStats.
pybind11::dict StatsDict(const CpuPool& pool);

}  // namespace rollouts
