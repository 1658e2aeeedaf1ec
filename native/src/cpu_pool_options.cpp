// SPDX-License-Identifier: Apache-2.0
// Options of a CpuPool's environments; cpu_pool.cpp steps them.
#include "rollouts/pool/cpu_pool.h"

namespace rollouts {

Options CpuPool::OptionsOf(std::int32_t env) {
  const auto lock = LockOpen(send_mutex_);
  return envs_->OptionsOf(env);
}

void CpuPool::SetOptions(const std::uint8_t* mask, const OptionColumns& options) {
  const auto lock = LockOpen(send_mutex_);
  CheckResettable(mask);
  std::vector<std::int32_t> envs;
  for (std::int32_t env = 0; env < options_.num_envs; ++env) {
    if (!mask || mask[env]) envs.push_back(env);
  }
  const auto put_in_place = envs_->PrepareOptions(envs, options, /*first_row=*/0);
  put_in_place();
  // a rebuilt engine has no episode to step
  for (const std::int32_t env : envs) started_[env] = 0;
  all_started_ = false;
}

}  // namespace rollouts
