// SPDX-License-Identifier: Apache-2.0
// The first difference that keeps two environments from sharing a pool's arrays.
#pragma once

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include "rollouts/core/spec.h"

namespace rollouts {

inline bool SameSpace(const SpaceSpec& a, const SpaceSpec& b) {
  const auto equal = [](const auto& left, const auto& right) {
    return std::equal(std::begin(left), std::end(left), std::begin(right));
  };
  return a.dtype == b.dtype && a.n == b.n && a.ndim == b.ndim && equal(a.shape, b.shape) &&
         a.multi_discrete == b.multi_discrete && a.elementwise == b.elementwise &&
         equal(a.low, b.low) && equal(a.high, b.high);
}

// Compares two names; a missing name is null.
inline bool SameName(const char* a, const char* b) {
  return a == b || (a && b && std::strcmp(a, b) == 0);
}

// As SpecDifference, for groups of agents.
inline std::string GroupDifference(const EnvSpec& a, const EnvSpec& b) {
  if (a.num_groups != b.num_groups) return "groups of agents";
  // numbers of agents first, because spaces often follow from them
  for (std::int32_t g = 0; g < a.num_groups; ++g) {
    const std::string name = a.groups[g].name;
    if (name != b.groups[g].name) return "groups of agents";
    if (a.groups[g].num_agents != b.groups[g].num_agents) return "number of agents of group " + name;
  }
  for (std::int32_t g = 0; g < a.num_groups; ++g) {
    const GroupSpec& one = a.groups[g];
    const GroupSpec& other = b.groups[g];
    const std::string name = one.name;
    if (!SameSpace(one.observation, other.observation)) return "observation space of group " + name;
    if (!SameSpace(one.action, other.action)) return "action space of group " + name;
  }
  return "";
}

// Names the first difference, such as "action space"; empty where there is none. The cost of a step
// may differ.
inline std::string SpecDifference(const EnvSpec& a, const EnvSpec& b) {
  // groups first, because the environment's own spaces follow from theirs
  const std::string of_groups = GroupDifference(a, b);
  if (!of_groups.empty()) return of_groups;
  if (!SameSpace(a.observation, b.observation)) return "observation space";
  if (!SameSpace(a.action, b.action)) return "action space";
  bool same_infos = a.num_infos == b.num_infos && a.reset_infos == b.reset_infos;
  for (std::int32_t i = 0; i < a.num_infos && same_infos; ++i) {
    same_infos = a.infos[i].dtype == b.infos[i].dtype && a.infos[i].length == b.infos[i].length &&
                 SameName(a.infos[i].name, b.infos[i].name);
  }
  return same_infos ? "" : "info columns";
}

}  // namespace rollouts
