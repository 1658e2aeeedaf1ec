// SPDX-License-Identifier: Apache-2.0
#include "rollouts/pool/placement.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

#include "rollouts/support/errors.h"

namespace rollouts {

void PinThisThread(std::int32_t cpu) {
#ifdef __linux__
  // a mask has as many bits as it needs, so that CPUs beyond cpu_set_t's 1024 work as well
  const std::size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
  std::vector<std::uint64_t> words((bytes + 7) / 8, 0);
  auto* mask = reinterpret_cast<cpu_set_t*>(words.data());
  CPU_SET_S(cpu, bytes, mask);
  // 0 means the calling thread
  if (sched_setaffinity(0, bytes, mask) == 0) return;
  const std::string reason = std::strerror(errno);
#else
  const std::string reason = "only Linux pins threads to CPUs";
#endif
  throw SpecError("could not pin a thread to CPU " + std::to_string(cpu) + ": " + reason +
                  "; name other CPUs in pin_threads or leave it out");
}

}  // namespace rollouts
