// SPDX-License-Identifier: Apache-2.0
// Pools for XLA: the numbers by which compiled computations know them.
#pragma once

#include <cstdint>
#include <memory>

#include "rollouts/pool/cpu_pool.h"

namespace rollouts {

// Numbers a pool. A computation that uses the number after the pool is gone gets an error;
// no number is given twice.
std::uint32_t NumberForXla(const std::shared_ptr<CpuPool>& pool);

}  // namespace rollouts
