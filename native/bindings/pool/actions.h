// SPDX-License-Identifier: Apache-2.0
// Reads actions, and the environments that they are for, from NumPy arrays.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <span>
#include <vector>

#include "rollouts/pool/cpu_pool.h"

namespace rollouts {

// Checks actions, one row per environment of `envs`, copies them and sends. Throws SpecError
// or DTypeError, naming the row, and what CpuPool's Send throws; nothing is sent then.
void SendActions(CpuPool& pool, const pybind11::object& actions,
                 std::span<const std::int32_t> envs, const BatchView* out);

// Converts global ids to indices into the pool. Throws SpecError or DTypeError for values that are
// not ids of the pool.
std::vector<std::int32_t> ReadEnvIds(const CpuPool& pool, const pybind11::object& env_id);

}  // namespace rollouts
