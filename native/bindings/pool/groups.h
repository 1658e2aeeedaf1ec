// SPDX-License-Identifier: Apache-2.0
// Groups of agents as NumPy arrays: (rows, agents, ...) for each group.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "rollouts/pool/cpu_pool.h"

namespace rollouts {

class ApartArrays;

// The arrays of one group, in the order in which NumPy gets them; those of the next group follow.
// rollouts/envs/multi_agent_env.py has the same order.
inline constexpr const char* kGroupArrays[] = {"obs",    "reward",         "terminated", "truncated",
                                               "active", "episode_return", "final_obs"};
inline constexpr std::size_t kNumGroupArrays = std::size(kGroupArrays);

// Appends the arrays, over memory that `owner` keeps alive; None for final_obs where there is none.
void AppendGroupArrays(const EnvSpec& spec, const BatchView& view, pybind11::ssize_t rows,
                       const pybind11::object& owner, pybind11::list& arrays);

// A caller's arrays of groups, which environments write into in place of the pool's.
class GroupOut {
 public:
  // Takes {group: array} under the name of one of kGroupArrays. Throws SpecError or DTypeError
  // where the arrays do not fit, or share memory with each other or with those that `apart` has.
  // Adds them to `apart`.
  void Take(const EnvSpec& spec, const std::string& name, const pybind11::object& given,
            std::size_t rows, ApartArrays& apart);
  bool empty() const { return kept_.empty(); }
  const std::array<GroupView, EnvSpec::kMaxGroups>& views() const { return views_; }
  // Puts the arrays into a received tuple, in which the first group begins at `first`.
  void PutInto(pybind11::tuple& fields, std::size_t first) const;

 private:
  struct Kept {
    std::size_t place;  // counted from the first group's place
    pybind11::array array;
  };
  std::vector<Kept> kept_;
  std::array<GroupView, EnvSpec::kMaxGroups> views_{};
};

// Checks the actions of all groups (an array (rows, agents, ...) for each, in order), copies them
// and sends. Throws as SendActions; messages name group, agent and row.
void SendGroups(CpuPool& pool, const pybind11::object& actions, std::span<const std::int32_t> envs,
                const BatchView* out);

}  // namespace rollouts
