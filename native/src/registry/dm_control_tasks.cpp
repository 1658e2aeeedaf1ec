// SPDX-License-Identifier: Apache-2.0
// The domains of the DeepMind Control Suite, from envs.cmake.
#include <string>

#include "registry_dm_control_includes.inc"
#include "rollouts/envs/dm_control/dmc_task.h"
#include "rollouts/support/errors.h"

namespace rollouts::dmc {

std::span<const Domain> Domains() {
  static constexpr Domain domains[] = {
#include "registry_dm_control_domains.inc"
  };
  return domains;
}

const TaskEntry& FindTask(const std::string& id) {
  for (const Domain& domain : Domains()) {
    for (const TaskEntry& task : domain.tasks) {
      if (id == task.id) return task;
    }
  }
  throw SpecError("the DeepMind Control Suite has no task '" + id + "'");
}

}  // namespace rollouts::dmc
