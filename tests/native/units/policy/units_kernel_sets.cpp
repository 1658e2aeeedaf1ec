// SPDX-License-Identifier: Apache-2.0
// The program of units has the kernels of every machine alone: that the others give the same bits is
// asked of the built library (tests/policies/test_native_policy.py).
#include "policy/kernels_of.h"

namespace rollouts::policy {

const Kernels* Avx512Kernels() { return nullptr; }
const Kernels* Avx2Kernels() { return nullptr; }

}  // namespace rollouts::policy
