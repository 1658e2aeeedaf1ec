// SPDX-License-Identifier: Apache-2.0
#include "rollouts/wrappers/normalizer.h"

#include <algorithm>
#include <cmath>

#include "rollouts/wrappers/row_moments.h"

namespace rollouts {

Normalizer::Normalizer(const Wrappers& wrappers, const SpaceSpec& observation,
                       std::int32_t num_envs)
    : space_(observation),
      by_observation_(wrappers.normalize_observation),
      by_reward_(wrappers.normalize_reward),
      clip_(wrappers.clip_reward) {
  if (by_observation_) observation_.emplace(space_.size());
  if (by_reward_) {
    reward_.emplace(1);
    returns_.resize(static_cast<std::size_t>(num_envs));
  }
  Refresh();
}

void Normalizer::AddReward(std::int32_t env, double reward, bool terminated) {
  double& sum = returns_[env];
  if (by_reward_->of_episodes) {
    sum = sum * by_reward_->gamma + static_cast<float>(reward);
    return;
  }
  sum = sum * by_reward_->gamma * (terminated ? 0.0 : 1.0) + reward;
}

void Normalizer::Count(const BatchView& view, std::int64_t first, std::int32_t count,
                       std::span<const Command> commands, std::uint32_t first_env_id) {
  packed_.clear();
  stepped_.clear();
  std::int64_t seen = 0;
  for (std::int64_t row = first; row < first + count; ++row) {
    const auto env = static_cast<std::int32_t>(view.env_id[row] - first_env_id);
    const Command command = commands[env];
    seen += command != Command::kObserve;
    if (reward_ && command == Command::kStep) {
      AddReward(env, view.reward[row], view.terminated[row] != 0);
      stepped_.push_back(returns_[env]);
    }
  }

  // the usual case, which needs no copy
  const std::uint8_t* rows = view.obs + first * view.obs_bytes;
  if (observation_ && seen < count) {
    for (std::int64_t row = first; row < first + count; ++row) {
      if (commands[view.env_id[row] - first_env_id] == Command::kObserve) continue;
      const std::uint8_t* const at = view.obs + row * view.obs_bytes;
      packed_.insert(packed_.end(), at, at + view.obs_bytes);
    }
    rows = packed_.data();
  }
  if (observation_ && seen > 0) CountObservations(rows, seen);
  if (!stepped_.empty()) reward_->Add(MomentsOf(stepped_.data(), std::ssize(stepped_), 1));
  EndEpisodes(view, first, count, first_env_id);
  Refresh();
}

void Normalizer::EndEpisodes(const BatchView& view, std::int64_t first, std::int32_t count,
                             std::uint32_t first_env_id) {
  if (!reward_ || !by_reward_->of_episodes) return;
  for (std::int64_t row = first; row < first + count; ++row) {
    if (view.terminated[row] || view.truncated[row]) returns_[view.env_id[row] - first_env_id] = 0;
  }
}

void Normalizer::CountObservations(const std::uint8_t* rows, std::int64_t count) {
  const std::int64_t size = space_.size();
  if (space_.dtype == DType::kFloat64) {
    observation_->Add(MomentsOf(reinterpret_cast<const double*>(rows), count, size));
  } else {
    observation_->Add(MomentsOf(reinterpret_cast<const float*>(rows), count, size));
  }
}

void Normalizer::Scale(const BatchView& view, std::int64_t first, std::int32_t count) const {
  if (observation_) {
    ScaleObservations(view.obs + first * view.obs_bytes, count);
    if (view.final_obs) ScaleFinal(view, first, count);
  }
  ScaleRewards(view.reward + first, count);
}

void Normalizer::ScaleRewards(double* rewards, std::int32_t count) const {
  if (reward_ && by_reward_->of_episodes) {
    for (std::int32_t i = 0; i < count; ++i) rewards[i] = static_cast<float>(rewards[i]);
  }
  if (reward_ && by_reward_->scales) {
    for (std::int32_t i = 0; i < count; ++i) rewards[i] /= reward_deviation_;
  }
  if (clip_) {
    for (std::int32_t i = 0; i < count; ++i) {
      rewards[i] = std::min(std::max(rewards[i], clip_->low), clip_->high);
    }
  }
}

void Normalizer::ScaleFinal(const BatchView& view, std::int64_t first, std::int32_t count) const {
  for (std::int64_t row = first; row < first + count; ++row) {
    // the other rows of final observations are undefined
    if (view.terminated[row] || view.truncated[row]) {
      ScaleObservations(view.final_obs + row * view.obs_bytes, 1);
    }
  }
}

void Normalizer::ScaleObservations(std::uint8_t* rows, std::int64_t count) const {
  space_.dtype == DType::kFloat64 ? ScaleRows<double>(rows, count) : ScaleRows<float>(rows, count);
}

template <typename T>
void Normalizer::ScaleRows(std::uint8_t* rows, std::int64_t count) const {
  auto* const values = reinterpret_cast<T*>(rows);
  Standardize(values, count, observation_->all().mean, deviation_, by_observation_->clip);
  if (!by_observation_->to_float32) return;
  for (std::int64_t i = 0; i < count * space_.size(); ++i) values[i] = static_cast<float>(values[i]);
}

void Normalizer::Refresh() {
  if (observation_) {
    const std::vector<double>& var = observation_->all().var;
    deviation_.resize(var.size());
    for (std::size_t i = 0; i < var.size(); ++i) {
      deviation_[i] = std::sqrt(var[i] + by_observation_->epsilon);
    }
  }
  if (reward_) reward_deviation_ = std::sqrt(reward_->all().var[0] + by_reward_->epsilon);
}

}  // namespace rollouts
