// SPDX-License-Identifier: Apache-2.0
// Pools for XLA: the numbers that compiled computations use for them.
#pragma once

#include <cstdint>
#include <memory>

#include "rollouts/pool/cpu_pool.h"

namespace rollouts {

// The number of one pool. A computation that uses it after the pool is gone gets an error; no
// number is given twice. Calls need the GIL.
class XlaNumber {
 public:
  // Numbers the pool at the first call: most pools are never used by XLA.
  std::uint32_t Of(const std::shared_ptr<CpuPool>& pool);
  // The number of times that computations have sent to the pool or received from it.
  std::int64_t num_calls() const;

 private:
  std::uint32_t number_ = 0;  // 0: it has none yet
};

}  // namespace rollouts
