// SPDX-License-Identifier: Apache-2.0
#include "rollouts/policy/kernels.h"

#include <cstdlib>

#include "kernels_of.h"
#include "rollouts/support/errors.h"

namespace rollouts::policy {
namespace {

// Those that this build has and this machine can run, the widest first.
std::vector<const Kernels*> Runnable() {
  std::vector<const Kernels*> found;
#if defined(__x86_64__) && defined(__GNUC__)
  // all that the files of these sets are compiled for, not their names alone
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  if (avx2 && avx512 && Avx512Kernels()) found.push_back(Avx512Kernels());
  if (avx2 && Avx2Kernels()) found.push_back(Avx2Kernels());
#endif
  found.push_back(BaselineKernels());
  return found;
}

}  // namespace

std::vector<std::string> KernelNames() {
  std::vector<std::string> names;
  for (const Kernels* kernels : Runnable()) names.emplace_back(kernels->name);
  return names;
}

const Kernels& KernelsOf(const std::string& name) {
  std::string known;
  for (const Kernels* kernels : Runnable()) {
    if (name == kernels->name) return *kernels;
    known += (known.empty() ? "" : ", ") + std::string(kernels->name);
  }
  throw SpecError("kernels are '" + name + "', and this machine can run: " + known);
}

const Kernels& BestKernels() {
  // chosen at the first call, for the life of the process
  static const Kernels& best = [&]() -> const Kernels& {
    const char* wanted = std::getenv("ROLLOUTS_POLICY_KERNELS");
    return wanted && *wanted ? KernelsOf(wanted) : *Runnable().front();
  }();
  return best;
}

}  // namespace rollouts::policy
