// SPDX-License-Identifier: Apache-2.0
// Options and models of a CpuPool's environments; cpu_pool.cpp steps them.
#include "rollouts/pool/cpu_pool.h"

namespace rollouts {

Options CpuPool::OptionsOf(std::int32_t env) {
  const auto lock = LockOpen(send_mutex_);
  return envs_->OptionsOf(env);
}

ModelArray CpuPool::ReadModel(std::int32_t env, const std::string& field, bool of_file) {
  const auto lock = LockOpen(send_mutex_);
  if (InFlight(env)) {
    throw ProtocolError(Describe(env) + " is in flight; call recv before you read its model");
  }
  return envs_->ReadModel(env, field, of_file);
}

std::vector<std::string> CpuPool::ModelFields(std::int32_t env) {
  const auto lock = LockOpen(send_mutex_);
  return envs_->ModelFields(env);
}

void CpuPool::Change(const std::uint8_t* mask, const EnvChanges& changes) {
  const auto lock = LockOpen(send_mutex_);
  CheckResettable(mask);
  // as in SendReset: no mask stands for all
  std::vector<std::int32_t> envs;
  for (std::int32_t env = 0; env < options_.num_envs; ++env) {
    if (!mask || mask[env]) envs.push_back(env);
  }
  // all that can fail happens first, to copies; what follows cannot
  const auto put_in_place = envs_->Prepare(envs, changes, /*first_row=*/0);
  put_in_place();
  // a rebuilt engine has no episode to step
  for (const std::int32_t env : envs) started_[env] = 0;
  all_started_ = false;
}

}  // namespace rollouts
