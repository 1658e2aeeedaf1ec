// SPDX-License-Identifier: Apache-2.0
// Arrays for a batch's rows: one array per field, shared by CPU slots
// and GPU tensors.
#pragma once

#include "rollouts/core/spec.h"

namespace rollouts {

// Arrays for the rows of one group of agents: each is (B, A) where no other shape is given.
struct GroupView {
  std::uint8_t* obs = nullptr;        // (B, A, obs_bytes)
  std::uint8_t* final_obs = nullptr;  // null unless autoreset is same-step
  double* reward = nullptr;
  std::uint8_t* terminated = nullptr;
  std::uint8_t* truncated = nullptr;
  std::uint8_t* active = nullptr;
  double* episode_return = nullptr;
  std::int64_t obs_bytes = 0;  // per agent
  std::int32_t num_agents = 0;
};

// Borrows the arrays; valid as long as the buffer that made it. Row i of every
// array belongs to the same environment step.
struct BatchView {
  std::uint8_t* obs = nullptr;        // (B, obs_bytes)
  std::uint8_t* final_obs = nullptr;  // (B, obs_bytes), null unless autoreset is same-step
  double* reward = nullptr;
  std::uint8_t* terminated = nullptr;
  std::uint8_t* truncated = nullptr;
  std::int32_t* env_id = nullptr;
  double* episode_return = nullptr;
  std::int32_t* episode_length = nullptr;
  void* infos[EnvSpec::kMaxInfos] = {};
  // Infos of the episode that same-step autoreset began in a row, else undefined. Null unless
  // autoreset is same-step and the spec has reset_infos.
  void* begun_infos[EnvSpec::kMaxInfos] = {};
  std::int64_t obs_bytes = 0;
  const GroupView* groups = nullptr;
  std::int32_t num_groups = 0;

  template <typename Obs>
  ROLLOUTS_HD Obs* ObsRow(std::int64_t row) const {
    return reinterpret_cast<Obs*>(obs + row * obs_bytes);
  }
  template <typename Obs>
  ROLLOUTS_HD Obs* FinalObsRow(std::int64_t row) const {
    return reinterpret_cast<Obs*>(final_obs + row * obs_bytes);
  }
};

}  // namespace rollouts
