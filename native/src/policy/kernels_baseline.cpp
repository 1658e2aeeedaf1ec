// SPDX-License-Identifier: Apache-2.0
// The kernels for what every machine of this architecture has.
#include "kernels_body.h"
#include "kernels_of.h"

namespace rollouts::policy {

const Kernels* BaselineKernels() {
  static constexpr Kernels kKernels{"baseline", Forward, Act};
  return &kKernels;
}

}  // namespace rollouts::policy
