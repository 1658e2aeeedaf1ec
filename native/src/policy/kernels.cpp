// SPDX-License-Identifier: Apache-2.0
#include "rollouts/policy/kernels.h"

#include <string>
#include <vector>

#include "kernels_of.h"
#include "rollouts/support/errors.h"
#include "support/runnable.h"

namespace rollouts::policy {
namespace {

std::vector<const Kernels*> AllRunnable() {
  return Runnable(Avx512Kernels(), Avx2Kernels(), BaselineKernels());
}

}  // namespace

std::vector<std::string> KernelNames() {
  std::vector<std::string> names;
  for (const Kernels* kernels : AllRunnable()) names.emplace_back(kernels->name);
  return names;
}

const Kernels& KernelsOf(const std::string& name) {
  std::string known;
  for (const Kernels* kernels : AllRunnable()) {
    if (name == kernels->name) return *kernels;
    known += (known.empty() ? "" : ", ") + std::string(kernels->name);
  }
  throw SpecError("kernels are '" + name + "', and this machine can run: " + known);
}

const Kernels& BestKernels() {
  // chosen at the first call, and kept until the process ends
  static const Kernels& best = *NamedBy("ROLLOUTS_POLICY_KERNELS", AllRunnable());
  return best;
}

}  // namespace rollouts::policy
