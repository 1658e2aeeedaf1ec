// SPDX-License-Identifier: Apache-2.0
// A thread's part of a rollout, in which policies and environments take turns for one chunk of
// environments: all steps of a chunk at once, or one step at a time.
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

// The same arrays from row `first` on; for worlds of agents `first` must be 0.
inline BatchView RowsFrom(BatchView view, const EnvSpec& spec, std::int64_t first) {
  if (first == 0) return view;
  view.obs += first * view.obs_bytes;
  view.final_obs += first * view.obs_bytes;
  view.reward += first;
  view.terminated += first;
  view.truncated += first;
  view.env_id += first;
  view.episode_return += first;
  view.episode_length += first;
  for (std::int32_t i = 0; i < spec.num_infos; ++i) {
    const std::int64_t bytes = first * spec.infos[i].size() * SizeOf(spec.infos[i].dtype);
    for (void** const info : {&view.infos[i], &view.begun_infos[i]}) {
      if (*info) *info = static_cast<std::uint8_t*>(*info) + bytes;
    }
  }
  return view;
}

// Results of one step of some environments; their observations are written to the rollout.
struct Rollout::Outcome {
  Outcome(const EnvSpec& spec, std::int32_t num_rows)
      : rows(spec, {.rows = num_rows, .with_final_obs = true, .out_of_order = false}),
        failed(static_cast<std::size_t>(num_rows), 0) {}

  BatchBuffer rows;
  std::vector<std::uint8_t> failed;  // whether the environment of a row failed
};

// One thread's state while it takes some environments through a rollout.
class Rollout::Part final : private RowSource {
 public:
  explicit Part(Rollout& rollout) : rollout_(rollout), steps_(rollout.rows_[0].arrays.steps) {
    rows_.reserve(rollout.rows_.size());
    for (std::size_t i = 0; i < rollout.rows_.size(); ++i) rows_.emplace_back(rollout, i);
  }

  // Runs all steps of some environments; row 0 of `outcome` belongs to the first one.
  std::int64_t Run(EnvBatch& envs, const Work& work, std::uint8_t* actions, EnvRange range,
                   Outcome& outcome) {
    Open(envs, range, outcome, /*first_row=*/0);
    std::int64_t made = 0;
    for (std::int32_t t = 0; t < steps_; ++t) {
      if (rollout_.PollIfDue()) return made;
      Choose(t, work, actions);
      Step(t, envs, work);
      See(t);
      made += range.count;
    }
    for (PolicyRows& rows : rows_) rows.Close();
    return made;
  }

  // Takes the results of step t - 1, which has been counted, and makes step t. Row i of `outcome`
  // belongs to environment i, and keeps the results of the step until the next call.
  std::int64_t Advance(std::int32_t t, EnvBatch& envs, const Work& work, std::uint8_t* actions,
                       EnvRange range, Outcome& outcome, const BatchFinisher& finisher) {
    Open(envs, range, outcome, /*first_row=*/range.first);
    if (rollout_.PollIfDue()) return 0;
    if (t > 0) {
      SetView(t - 1);
      finisher.Scale(view_, range.first, range.count);
      See(t - 1);
    }
    if (t == steps_) {
      for (PolicyRows& rows : rows_) rows.Close();
      return 0;
    }
    Choose(t, work, actions);
    Step(t, envs, work);
    for (PolicyRows& rows : rows_) rows.Pause();
    return range.count;
  }

 private:
  void Open(EnvBatch& envs, EnvRange range, Outcome& outcome, std::int32_t first_row) {
    range_ = range;
    outcome_ = &outcome;
    first_row_ = first_row;
    // consecutive environments, whose rows of every array lie together
    ids_.resize(static_cast<std::size_t>(range.count));
    std::iota(ids_.begin(), ids_.end(), range.first);
    for (PolicyRows& rows : rows_) rows.Open(envs, range);
  }

  void Choose(std::int32_t t, const Work& work, std::uint8_t* actions) {
    std::uint8_t* const first_action = actions + range_.first * work.action_bytes;
    for (PolicyRows& rows : rows_) rows.Choose(t, first_action, work.action_bytes);
  }

  void See(std::int32_t t) {
    const BatchView own = RowsFrom(view_, rollout_.spec_, first_row_);
    for (PolicyRows& rows : rows_) rows.See(t, own, {Failed(), ids_.size()});
  }

  std::uint8_t* Failed() const { return outcome_->failed.data() + first_row_; }

  // Returns rows of `outcome_` in the order of the environments, because they are stepped in order.
  RowSource::Rows Take(std::int32_t count) override {
    const RowSource::Rows rows{view_, first_row_ + taken_, count, nullptr};
    taken_ += count;
    return rows;
  }
  void Finish(const RowSource::Rows&) override {}
  void Fail(std::int32_t env, const std::string& message) override {
    Failed()[env - range_.first] = 1;
    rollout_.settings_.fail(env, message);
    // the pool throws, so the rest of the rollout is of no use
    if (rollout_.settings_.stop_at_failure) rollout_.Stop();
  }

  void Step(std::int32_t t, EnvBatch& envs, const Work& work) {
    std::fill_n(Failed(), range_.count, std::uint8_t{0});
    SetView(t);
    taken_ = 0;
    envs.Run(ids_, work, *this);
  }

  // Lets observations of step t be written where the next step reads them, without a copy.
  void SetView(std::int32_t t) {
    view_ = outcome_->rows.view();
    const auto obs_of = [&](std::size_t g, std::int64_t bytes) {
      return rows_[g].ObsAt(t + 1) - first_row_ * bytes;
    };
    if (view_.num_groups == 0) view_.obs = obs_of(0, view_.obs_bytes);
    for (std::int32_t g = 0; g < view_.num_groups; ++g) {
      groups_[g] = view_.groups[g];
      groups_[g].obs = obs_of(static_cast<std::size_t>(g), groups_[g].obs_bytes * groups_[g].num_agents);
    }
    view_.groups = groups_.data();
  }

  Rollout& rollout_;
  const std::int32_t steps_;
  std::vector<PolicyRows> rows_;  // for each group of agents, or one for all environments

  // the present environments
  EnvRange range_;
  Outcome* outcome_ = nullptr;
  std::int32_t first_row_ = 0;  // row of the first one, in `outcome_`
  std::vector<std::int32_t> ids_;
  BatchView view_;
  std::array<GroupView, EnvSpec::kMaxGroups> groups_;  // arrays that view_ points to
  std::int64_t taken_ = 0;
};

}  // namespace rollouts::policy
