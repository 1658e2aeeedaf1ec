// SPDX-License-Identifier: Apache-2.0
// Chooses, among compiled variants of the same loops, one whose instruction set this machine has.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "rollouts/support/errors.h"

namespace rollouts {

// Chooses the widest set. `avx2` is compiled for AVX2 and FMA at most, `avx512` also for AVX-512 F,
// DQ, VL and BW; null: this build has none. `baseline` runs everywhere.
template <typename Kernels>
std::vector<const Kernels*> Runnable([[maybe_unused]] const Kernels* avx512,
                                     [[maybe_unused]] const Kernels* avx2,
                                     const Kernels* baseline) {
  std::vector<const Kernels*> found;
#if defined(__x86_64__) && defined(__GNUC__)
  // checks all extensions that the files of these sets are compiled for, not only those in their
  // names
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  if (has_avx2 && has_avx512 && avx512) found.push_back(avx512);
  if (has_avx2 && avx2) found.push_back(avx2);
#endif
  found.push_back(baseline);
  return found;
}

// The variant that the environment variable names; the widest one if it is not set. Null if its
// value is the word in `none`.
template <typename Kernels>
const Kernels* NamedBy(const char* variable, const std::vector<const Kernels*>& runnable,
                       const char* none = nullptr) {
  const char* const text = std::getenv(variable);
  const std::string_view wanted = text ? text : "";
  if (wanted.empty()) return runnable.front();
  std::string known = none ? none : "";
  if (none && wanted == none) return nullptr;
  for (const Kernels* kernels : runnable) {
    if (wanted == kernels->name) return kernels;
    known += (known.empty() ? "" : ", ") + std::string(kernels->name);
  }
  throw SpecError(std::string(variable) + " is '" + std::string(wanted) + "', and this machine can run: " + known);
}

}  // namespace rollouts
