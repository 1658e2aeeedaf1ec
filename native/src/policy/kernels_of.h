// SPDX-License-Identifier: Apache-2.0
// The kernels of each instruction set; null where this build does not have them.
#pragma once

#include "rollouts/policy/kernels.h"

namespace rollouts::policy {

const Kernels* Avx512Kernels();
const Kernels* Avx2Kernels();
const Kernels* BaselineKernels();

}  // namespace rollouts::policy
