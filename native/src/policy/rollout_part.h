// SPDX-License-Identifier: Apache-2.0
// A thread's part of a rollout: the policies' turn and the environments', for one chunk of them.
#pragma once

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "policy/policy_rows.h"
#include "rollouts/policy/rollout.h"
#include "rollouts/pool/batch_buffer.h"

namespace rollouts::policy {

// What one thread needs to take some environments through a rollout.
class Rollout::Part final : private RowSource {
 public:
  explicit Part(Rollout& rollout)
      : rollout_(rollout),
        steps_(rollout.rows_[0].arrays.steps),
        outcome_(rollout.spec_,
                 {.rows = rollout.settings_.chunk, .with_final_obs = true, .out_of_order = false}),
        failed_(static_cast<std::size_t>(rollout.settings_.chunk), 0) {
    rows_.reserve(rollout.rows_.size());
    for (std::size_t i = 0; i < rollout.rows_.size(); ++i) rows_.emplace_back(rollout, i);
  }

  std::int64_t Run(EnvBatch& envs, const Work& work, std::uint8_t* actions, EnvRange range) {
    range_ = range;
    // neighbours: their rows of every array lie together
    ids_.resize(static_cast<std::size_t>(range.count));
    std::iota(ids_.begin(), ids_.end(), range.first);
    for (PolicyRows& rows : rows_) rows.Open(envs, range);
    std::uint8_t* const first_action = actions + range.first * work.action_bytes;
    std::int64_t made = 0;
    for (std::int32_t t = 0; t < steps_; ++t) {
      if (rollout_.PollIfDue()) return made;
      for (PolicyRows& rows : rows_) rows.Choose(t, first_action, work.action_bytes);
      Step(t, envs, work);
      made += range.count;
    }
    for (PolicyRows& rows : rows_) rows.Close();
    return made;
  }

 private:
  // Rows of `outcome_` in the order of the environments, as they are stepped in order.
  RowSource::Rows Take(std::int32_t count) override {
    const RowSource::Rows rows{view_, taken_, count, nullptr};
    taken_ += count;
    return rows;
  }
  void Finish(const RowSource::Rows&) override {}
  void Fail(std::int32_t env, const std::string& message) override {
    failed_[static_cast<std::size_t>(env - range_.first)] = 1;
    rollout_.settings_.fail(env, message);
    // the pool raises: nobody gets the rest of the rollout
    if (rollout_.settings_.stop_at_failure) rollout_.Stop();
  }

  void Step(std::int32_t t, EnvBatch& envs, const Work& work) {
    std::fill_n(failed_.begin(), range_.count, std::uint8_t{0});
    view_ = outcome_.view();
    // observations go where the next step reads them, without a copy
    if (view_.num_groups == 0) view_.obs = rows_[0].ObsAt(t + 1);
    for (std::int32_t g = 0; g < view_.num_groups; ++g) {
      groups_[g] = outcome_.view().groups[g];
      groups_[g].obs = rows_[static_cast<std::size_t>(g)].ObsAt(t + 1);
    }
    view_.groups = groups_.data();
    taken_ = 0;
    envs.Run(ids_, work, *this);
    for (PolicyRows& rows : rows_) rows.See(t, view_, failed_);
  }

  Rollout& rollout_;
  const std::int32_t steps_;
  BatchBuffer outcome_;           // rows of one step; observations go to the rollout
  std::vector<PolicyRows> rows_;  // for each group of agents, or one for all environments
  std::vector<std::uint8_t> failed_;

  // of the environments in hand
  EnvRange range_;
  std::vector<std::int32_t> ids_;
  BatchView view_;
  std::array<GroupView, EnvSpec::kMaxGroups> groups_;  // what view_ points to
  std::int64_t taken_ = 0;
};

}  // namespace rollouts::policy
