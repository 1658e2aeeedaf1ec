// SPDX-License-Identifier: Apache-2.0
// A thread's part of a rollout: observe, compute, sample, step, for one chunk of environments.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "policy/columns.h"
#include "policy/state_columns.h"
#include "rollouts/policy/rollout.h"
#include "rollouts/pool/batch_buffer.h"
#include "rollouts/support/errors.h"

namespace rollouts::policy {

// What one thread needs to take some environments through a rollout.
class Rollout::Part final : private RowSource {
 public:
  explicit Part(Rollout& rollout)
      : rollout_(rollout),
        spec_(rollout.spec_),
        policy_(rollout.policy_),
        arrays_(rollout.arrays_),
        obs_bytes_(spec_.observation.bytes()),
        box_size_(IsDiscrete(policy_.head.kind) ? 1 : spec_.action.size()),
        elements_(policy_.head.nvec.size() * kColumns),
        outcome_(spec_, {.rows = rollout.settings_.chunk, .with_final_obs = true, .out_of_order = false}),
        rows_(std::int64_t{policy_.network->num_rows()} * kColumns),
        box_(std::int64_t{policy_.network->output_size(0)} * kColumns),
        states_(policy_, arrays_, rollout.settings_.chunk),
        failed_(static_cast<std::size_t>(rollout.settings_.chunk), 0) {
    outputs_.with_entropy = false;
    outputs_.box = box_.data();
    outputs_.elements = elements_.data();
  }

  std::int64_t Run(EnvBatch& envs, const Work& work, std::uint8_t* actions, EnvRange range) {
    envs_ = &envs;
    range_ = range;
    // neighbours: their rows of every array lie together
    ids_.resize(static_cast<std::size_t>(range.count));
    std::iota(ids_.begin(), ids_.end(), range.first);
    states_.Open(range);
    std::int64_t steps = 0;
    for (std::int32_t t = 0; t < arrays_.steps; ++t) {
      if (rollout_.PollIfDue()) return steps;
      Choose(t, actions + range.first * work.action_bytes, work.action_bytes);
      Step(t, work);
      steps += range.count;
    }
    ValueLast();
    states_.Close();
    return steps;
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

  // The place of row t of this part's first environment in arrays (T, B).
  std::int64_t At(std::int32_t t) const {
    return std::int64_t{t} * arrays_.envs + range_.first;
  }
  std::uint8_t* ObsAt(std::int32_t t) const { return arrays_.obs + At(t) * obs_bytes_; }

  // Runs the network on rows of observations, at most one group, whose states are loaded.
  void Forward(const std::uint8_t* obs, std::int32_t count) {
    Gather(spec_.observation, obs, count, rows_.data());
    const auto steps = policy_.network->instructions();
    rollout_.kernels_.forward(steps.data(), static_cast<std::int32_t>(steps.size()),
                              policy_.params.data(), rows_.data());
  }

  // The values that Forward computed.
  void TakeValues(std::int32_t count, float* to) {
    if (!policy_.has_value()) {
      std::fill_n(to, count, 0.0f);
      return;
    }
    const float* value =
        OutputRows(*policy_.network, NumHeadInputs(policy_.head.kind), rows_.data());
    for (std::int32_t i = 0; i < count; ++i) to[i] = value[i];
  }

  // Chooses the actions of step t: writes them to the rollout, and to the pool's rows.
  void Choose(std::int32_t t, std::uint8_t* actions, std::int64_t action_bytes) {
    states_.Write(t);
    for (std::int32_t first = 0; first < range_.count; first += kColumns) {
      const std::int32_t count = std::min(kColumns, range_.count - first);
      states_.Load(first, rows_.data());
      Forward(ObsAt(t) + first * obs_bytes_, count);
      states_.Keep(first, rows_.data());
      // by episode and step, so that neither threads nor chunks change an action
      NoiseKeys keys;
      for (std::int32_t i = 0; i < count; ++i) {
        const EpisodeClock& clock = envs_->clock(range_.first + first + i);
        keys.env_id[i] = clock.env_id;
        keys.episode[i] = clock.next_episode - 1;
        keys.step[i] = static_cast<std::uint32_t>(clock.elapsed_steps);
      }
      rollout_.kernels_.act(policy_.head, HeadInputsOf(policy_, rows_.data()), keys, outputs_);
      const std::int64_t at = At(t) + first;
      TakeValues(count, arrays_.value + at);
      // before anything is written that an environment would be stepped with
      CheckFinite(count, arrays_.value + at, range_.first + first);
      std::copy_n(outputs_.log_prob, count, arrays_.log_prob + at);
      if (arrays_.inputs) TakeInputs(count, at);
      WriteActions(count, at, actions + first * action_bytes, action_bytes);
    }
  }

  // What the head read: logits, or mean and log_std, one after the other.
  void TakeInputs(std::int32_t count, std::int64_t at) {
    const HeadInputs inputs = HeadInputsOf(policy_, rows_.data());
    float* to = arrays_.inputs + at * (inputs.size + inputs.second_size);
    for (std::int32_t i = 0; i < count; ++i) {
      for (std::int32_t k = 0; k < inputs.size; ++k) *to++ = inputs.first[k * kColumns + i];
      for (std::int32_t k = 0; k < inputs.second_size; ++k) *to++ = inputs.second[k * kColumns + i];
    }
  }

  // Throws before an environment is stepped with what came of nan.
  void CheckFinite(std::int32_t count, const float* value, std::int32_t first_env) const {
    for (std::int32_t i = 0; i < count; ++i) {
      const bool good = std::isfinite(value[i]) && std::isfinite(outputs_.log_prob[i]);
      if (good) [[likely]] continue;
      const bool is_value = !std::isfinite(value[i]);
      const float seen = is_value ? value[i] : outputs_.log_prob[i];
      throw SpecError(std::string("the policy returned a ") + (is_value ? "value" : "log_prob") +
                      " of " + std::to_string(seen) + " for env_id " +
                      std::to_string(first_env + i + rollout_.settings_.env_id_offset) +
                      ", expected a finite number: look at its weights and at the observation");
    }
  }

  void WriteActions(std::int32_t count, std::int64_t at, std::uint8_t* actions,
                    std::int64_t action_bytes) const {
    if (!elements_.empty()) {
      WriteElements(count, at, actions);
    } else if (IsDiscrete(policy_.head.kind)) {
      auto* chosen = reinterpret_cast<std::int64_t*>(arrays_.action) + at;
      // int64 as Python has actions, int32 as environments take them
      for (std::int32_t i = 0; i < count; ++i) {
        chosen[i] = outputs_.index[i];
        std::memcpy(actions + i * action_bytes, &outputs_.index[i], sizeof(std::int32_t));
      }
    } else if (spec_.action.dtype == DType::kFloat32) {
      WriteBox<float>(count, at, actions);
    } else {
      WriteBox<double>(count, at, actions);
    }
  }

  // The same numbers to the rollout and to the pool, both of int32.
  void WriteElements(std::int32_t count, std::int64_t at, std::uint8_t* actions) const {
    const std::size_t size = policy_.head.nvec.size();
    auto* chosen = reinterpret_cast<std::int32_t*>(arrays_.action);
    chosen += at * static_cast<std::int64_t>(size);
    auto* stored = reinterpret_cast<std::int32_t*>(actions);
    for (std::int32_t i = 0; i < count; ++i) {
      for (std::size_t e = 0; e < size; ++e) {
        *chosen++ = *stored++ = elements_[e * kColumns + static_cast<std::size_t>(i)];
      }
    }
  }

  // As sampled to the rollout, clipped to the bounds of the space to the pool.
  template <typename Real>
  void WriteBox(std::int32_t count, std::int64_t at, std::uint8_t* actions) const {
    const SpaceSpec& space = spec_.action;
    auto* sampled = reinterpret_cast<Real*>(arrays_.action) + at * box_size_;
    auto* stored = reinterpret_cast<Real*>(actions);
    for (std::int32_t i = 0; i < count; ++i) {
      for (std::int64_t d = 0; d < box_size_; ++d) {
        const auto action = static_cast<Real>(outputs_.box[d * kColumns + i]);
        const std::int64_t bound = space.elementwise ? d : 0;
        *sampled++ = action;
        *stored++ = std::clamp(action, static_cast<Real>(space.low[bound]),
                               static_cast<Real>(space.high[bound]));
      }
    }
  }

  void Step(std::int32_t t, const Work& work) {
    std::fill_n(failed_.begin(), range_.count, std::uint8_t{0});
    view_ = outcome_.view();
    // observations go where the next step reads them, without a copy
    view_.obs = ObsAt(t + 1);
    taken_ = 0;
    envs_->Run(ids_, work, *this);

    const std::int64_t at = At(t);
    cut_.clear();
    ended_.clear();
    for (std::int32_t i = 0; i < range_.count; ++i) {
      arrays_.reward[at + i] = static_cast<float>(view_.reward[i]);
      arrays_.terminated[at + i] = view_.terminated[i];
      arrays_.truncated[at + i] = view_.truncated[i];
      arrays_.bootstrap_value[at + i] = 0;
      arrays_.episode_return[at + i] = view_.episode_return[i];
      arrays_.episode_length[at + i] = view_.episode_length[i];
      if (view_.terminated[i] | view_.truncated[i]) [[unlikely]] SeeEnd(t, i);
    }
    if (!cut_.empty() && policy_.has_value()) BootstrapCut(at);
    // only now: final observations are valued with what the episode left
    for (const std::int32_t i : ended_) states_.Begin(i);
  }

  void SeeEnd(std::int32_t t, std::int32_t i) {
    ended_.push_back(i);
    // a failed environment has no final observation
    const bool failed = failed_[static_cast<std::size_t>(i)] != 0;
    if (view_.truncated[i] && !view_.terminated[i] && !failed) cut_.push_back(i);
    if (!rollout_.settings_.keep_final_obs) return;
    const std::uint8_t* obs = (failed ? ObsAt(t) : view_.final_obs) + i * obs_bytes_;
    // one list for all threads: ends are rare
    const std::lock_guard lock(rollout_.mutex_);
    rollout_.final_obs_.push_back({t, range_.first + i, {obs, obs + obs_bytes_}});
  }

  // Values what the policy would have seen next where an episode was cut off.
  void BootstrapCut(std::int64_t at) {
    std::vector<std::uint8_t> obs(static_cast<std::size_t>(kColumns * obs_bytes_));
    for (std::size_t first = 0; first < cut_.size(); first += kColumns) {
      const auto count =
          static_cast<std::int32_t>(std::min<std::size_t>(kColumns, cut_.size() - first));
      // side by side, as Forward reads them: they lie anywhere among the rows
      for (std::int32_t i = 0; i < count; ++i) {
        std::memcpy(obs.data() + i * obs_bytes_, view_.final_obs + cut_[first + i] * obs_bytes_,
                    static_cast<std::size_t>(obs_bytes_));
      }
      states_.LoadEach(std::span(cut_).subspan(first, static_cast<std::size_t>(count)),
                       rows_.data());
      Forward(obs.data(), count);
      float value[kColumns];
      TakeValues(count, value);
      for (std::int32_t i = 0; i < count; ++i) {
        arrays_.bootstrap_value[at + cut_[first + i]] = value[i];
      }
    }
  }

  // The values behind the last step, from which the returns of open episodes go on.
  void ValueLast() {
    if (!policy_.has_value()) {
      std::fill_n(arrays_.last_value + range_.first, range_.count, 0.0f);
      return;
    }
    for (std::int32_t first = 0; first < range_.count; first += kColumns) {
      const std::int32_t count = std::min(kColumns, range_.count - first);
      states_.Load(first, rows_.data());
      Forward(ObsAt(arrays_.steps) + first * obs_bytes_, count);
      TakeValues(count, arrays_.last_value + range_.first + first);
    }
  }

  Rollout& rollout_;
  const EnvSpec& spec_;
  const NativePolicy& policy_;
  const RolloutArrays& arrays_;
  const std::int64_t obs_bytes_;
  const std::int64_t box_size_;
  std::vector<std::int32_t> elements_;  // of a MultiDiscrete action, (elements, kColumns)
  BatchBuffer outcome_;  // rows of one step; observations go to the rollout
  Scratch rows_;
  Scratch box_;
  HeadOutputs outputs_;
  StateColumns states_;
  std::vector<std::uint8_t> failed_;

  // of the environments in hand
  EnvBatch* envs_ = nullptr;
  EnvRange range_;
  std::vector<std::int32_t> ids_;
  BatchView view_;
  std::int64_t taken_ = 0;
  std::vector<std::int32_t> cut_, ended_;  // in the step in hand; counted from range_.first
};

}  // namespace rollouts::policy
