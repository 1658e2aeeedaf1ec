// SPDX-License-Identifier: Apache-2.0
// The rows for which one policy acts, among a thread's present environments: the environments
// themselves, or the agents of one of their groups.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "policy/columns.h"
#include "policy/state_columns.h"
#include "rollouts/data/column_digests.h"
#include "rollouts/data/gae.h"
#include "rollouts/data/nstep.h"
#include "rollouts/policy/rollout.h"
#include "rollouts/support/errors.h"

namespace rollouts::policy {

// Observes, computes, samples, and writes the results, step by step. Rows are counted from the
// first present environment: environment by environment, its agents in order.
class PolicyRows {
 public:
  // `rollout` must outlive this object.
  PolicyRows(Rollout& rollout, std::size_t place)
      : rollout_(rollout),
        place_(place),
        of_(rollout.rows_[place]),
        policy_(*of_.policy),
        arrays_(of_.arrays),
        obs_bytes_(of_.observation->bytes()),
        box_size_(IsDiscrete(policy_.head.kind) ? 1 : of_.action->size()),
        elements_(policy_.nvec.size() * kColumns),
        scratch_(std::int64_t{policy_.network->num_rows()} * kColumns),
        box_(std::int64_t{policy_.network->output_size(0)} * kColumns),
        states_(policy_, arrays_, rollout.settings_.chunk * of_.num_agents) {
    outputs_.with_entropy = arrays_.entropy != nullptr;
    outputs_.box = box_.data();
    outputs_.elements = elements_.data();
  }

  // Takes over the rows of some environments, which are the present ones from now on.
  void Open(EnvBatch& envs, EnvRange range) {
    first_env_ = range.first;
    clocks_.clear();
    for (std::int32_t env = 0; env < range.count; ++env) {
      clocks_.push_back(&envs.clock(range.first + env));
    }
    range_ = {range.first * of_.num_agents, range.count * of_.num_agents};
    states_.Open(range_);
  }

  std::uint8_t* ObsAt(std::int32_t t) const { return arrays_.obs + At(t) * obs_bytes_; }

  // Chooses the actions of step t: writes them to the rollout, and to the pool's action rows, one
  // of `action_bytes` bytes for each environment.
  void Choose(std::int32_t t, std::uint8_t* actions, std::int64_t action_bytes) {
    states_.Write(t);
    for (std::int32_t first = 0; first < range_.count; first += kColumns) {
      const std::int32_t count = std::min(kColumns, range_.count - first);
      states_.Load(first, scratch_.data());
      Forward(ObsAt(t) + first * obs_bytes_, count);
      states_.Keep(first, scratch_.data());
      if (arrays_.action_mask) {
        MaskLogits(policy_, MaskAt(t) + first * MaskSize(), count, scratch_.data());
      }
      rollout_.kernels_.act(policy_.head, HeadInputsOf(policy_, scratch_.data()),
                            KeysOf(first, count), outputs_);
      const std::int64_t at = At(t) + first;
      TakeValues(count, arrays_.value + at);
      // the check comes before any action is written that would step an environment
      CheckFinite(count, arrays_.value + at, first);
      std::copy_n(outputs_.log_prob, count, arrays_.log_prob + at);
      if (arrays_.inputs) TakeInputs(count, at);
      if (arrays_.entropy) std::copy_n(outputs_.entropy, count, arrays_.entropy + at);
      WriteActions(first, count, at, actions, action_bytes);
    }
    if (arrays_.num_chosen) std::fill_n(arrays_.num_chosen + range_.first, range_.count, t + 1);
  }

  // Writes the results of step t. `view` has the present environments; `failed` marks those that
  // failed.
  void See(std::int32_t t, const BatchView& view, std::span<const std::uint8_t> failed) {
    const Seen seen = SeenOf(view);
    const std::int64_t at = At(t);
    TakeOutcomes(seen, view, at);
    if (arrays_.action_mask) TakeMasks(view, failed, MaskAt(t + 1));
    cut_.clear();
    ended_.clear();
    const std::uint8_t* terminated = arrays_.terminated + at;
    const std::uint8_t* truncated = arrays_.truncated + at;
    ForRows(0, range_.count, [&](std::int32_t i, std::int32_t env, std::int32_t) {
      if (!(terminated[i] | truncated[i])) [[likely]] return;
      ended_.push_back(i);
      const bool is_over = view.terminated[env] | view.truncated[env];
      // a failed environment has no final observation
      const bool has_final = is_over && !failed[static_cast<std::size_t>(env)];
      // an agent that left earlier gets no value when the others' episode ends
      const bool active = !seen.active || seen.active[i];
      if (!terminated[i] && active && has_final) cut_.push_back(i);
      if (!rollout_.settings_.rules.keep_final_obs) return;
      const std::uint8_t* shown = has_final ? seen.final_obs : ObsAt(is_over ? t : t + 1);
      rollout_.KeepFinal(place_, t, range_.first + i, {shown + i * obs_bytes_, ObsBytes()});
    });
    if (!cut_.empty() && policy_.has_value()) BootstrapCut(at, seen.final_obs);
    // begun only now, because final observations are valued with the states of the episode that
    // ended
    for (const std::int32_t row : ended_) states_.Begin(row);
  }

  void Pause() const { states_.Pause(); }
  // Values the observations after the last step, which the returns of open episodes need. Estimates
  // the returns and digests the rows while they are in this thread's caches, and keeps the states
  // for the next rollout.
  void Close() {
    ValueLast();
    if (arrays_.advantage) EstimateReturns();
    if (arrays_.digests.digest) Digest();
    states_.Close();
  }

 private:
  // The rows of a step as the pool wrote them.
  struct Seen {
    const double* reward;
    const std::uint8_t* terminated;
    const std::uint8_t* truncated;
    const double* episode_return;
    const std::uint8_t* final_obs;
    const std::uint8_t* active;  // null: environments with one agent
  };
  Seen SeenOf(const BatchView& view) const {
    if (!of_.group) {
      return {view.reward, view.terminated, view.truncated, view.episode_return, view.final_obs,
              nullptr};
    }
    const GroupView& group = view.groups[place_];
    return {group.reward,         group.terminated, group.truncated,
            group.episode_return, group.final_obs,  group.active};
  }

  // Copies one array after the other, many rows at once.
  void TakeOutcomes(const Seen& seen, const BatchView& view, std::int64_t at) const {
    const std::int32_t count = range_.count;
    std::copy_n(seen.reward, count, arrays_.reward + at);
    std::copy_n(seen.terminated, count, arrays_.terminated + at);
    std::copy_n(seen.truncated, count, arrays_.truncated + at);
    std::fill_n(arrays_.bootstrap_value + at, count, 0.0f);
    std::copy_n(seen.episode_return, count, arrays_.episode_return + at);
    if (!seen.active) {
      std::copy_n(view.episode_length, count, arrays_.episode_length + at);
      return;
    }
    std::copy_n(seen.active, count, arrays_.active + at);
    ForRows(0, count, [&](std::int32_t i, std::int32_t env, std::int32_t) {
      // an agent that left earlier is truncated where the others' episode ends
      const std::uint8_t is_over = view.terminated[env] | view.truncated[env];
      arrays_.truncated[at + i] |= is_over & (seen.active[i] ^ 1);
      arrays_.episode_length[at + i] = view.episode_length[env];
    });
  }

  // Takes the masks of the observations after a step; where an episode began, they are in the infos
  // of its first observation.
  void TakeMasks(const BatchView& view, std::span<const std::uint8_t> failed,
                 std::uint8_t* to) const {
    const auto* own = static_cast<const std::uint8_t*>(view.infos[rollout_.mask_info_]);
    const auto* begun = static_cast<const std::uint8_t*>(view.begun_infos[rollout_.mask_info_]);
    const std::int64_t size = MaskSize();
    for (std::int32_t env = 0; env < range_.count; ++env, to += size) {
      const bool ended = view.terminated[env] | view.truncated[env];
      const std::uint8_t* from = (ended && begun ? begun : own) + env * size;
      // a failed environment has no mask
      if (failed[static_cast<std::size_t>(env)]) {
        std::fill_n(to, size, std::uint8_t{1});
      } else {
        for (std::int64_t a = 0; a < size; ++a) to[a] = from[a] != 0;
      }
    }
  }
  std::int64_t MaskSize() const { return policy_.network->output_size(0); }
  std::uint8_t* MaskAt(std::int32_t t) const { return arrays_.action_mask + At(t) * MaskSize(); }

  // Returns the index in arrays (T, B) of the first present row at step t.
  std::int64_t At(std::int32_t t) const { return std::int64_t{t} * arrays_.rows + range_.first; }
  std::size_t ObsBytes() const { return static_cast<std::size_t>(obs_bytes_); }

  // Calls visit(i, env, agent) for rows first + i; rows and environments are counted from the first
  // present environment.
  template <typename Visit>
  void ForRows(std::int32_t first, std::int32_t count, Visit&& visit) const {
    if (of_.num_agents == 1) {
      for (std::int32_t i = 0; i < count; ++i) visit(i, first + i, 0);
      return;
    }
    std::int32_t env = first / of_.num_agents, agent = first % of_.num_agents;
    for (std::int32_t i = 0; i < count; ++i) {
      visit(i, env, agent);
      if (++agent == of_.num_agents) {
        agent = 0;
        ++env;
      }
    }
  }

  // Returns keys that depend on env_id, episode and step alone, so that neither threads nor chunks
  // change an action. No two agents share a key, so that one policy may act for several groups.
  const NoiseKeys& KeysOf(std::int32_t first, std::int32_t count) {
    ForRows(first, count, [&](std::int32_t i, std::int32_t env, std::int32_t agent) {
      const EpisodeClock& clock = *clocks_[static_cast<std::size_t>(env)];
      keys_.env_id[i] = clock.env_id * static_cast<std::uint32_t>(of_.all_agents) +
                       static_cast<std::uint32_t>(of_.first_agent + agent);
      keys_.episode[i] = clock.next_episode - 1;
      keys_.step[i] = static_cast<std::uint32_t>(clock.elapsed_steps);
    });
    return keys_;
  }

  // Runs the network on rows of observations, at most kColumns, whose states are loaded.
  void Forward(const std::uint8_t* obs, std::int32_t count) {
    Gather(*of_.observation, obs, count, scratch_.data());
    const auto steps = policy_.network->instructions();
    rollout_.kernels_.forward(steps.data(), static_cast<std::int32_t>(steps.size()),
                              policy_.params.data(), scratch_.data(), count);
  }

  // Takes the values that Forward computed.
  void TakeValues(std::int32_t count, float* to) {
    if (!policy_.has_value()) {
      std::fill_n(to, count, 0.0f);
      return;
    }
    const float* value =
        OutputRows(*policy_.network, NumHeadInputs(policy_.head.kind), scratch_.data());
    for (std::int32_t i = 0; i < count; ++i) to[i] = value[i];
  }

  // Takes the head's inputs: logits, or mean and log_std, one after the other.
  void TakeInputs(std::int32_t count, std::int64_t at) {
    const HeadInputs inputs = HeadInputsOf(policy_, scratch_.data());
    float* to = arrays_.inputs + at * (inputs.size + inputs.second_size);
    for (std::int32_t i = 0; i < count; ++i) {
      for (std::int32_t k = 0; k < inputs.size; ++k) *to++ = inputs.first[k * kColumns + i];
      for (std::int32_t k = 0; k < inputs.second_size; ++k) *to++ = inputs.second[k * kColumns + i];
    }
  }

  // Throws for a result that is not finite, before an environment is stepped with it.
  void CheckFinite(std::int32_t count, const float* value, std::int32_t first) const {
    // checks all rows at once, without branches, so that the loop is vectorised
    std::uint32_t bad = 0;
    for (std::int32_t i = 0; i < count; ++i) {
      bad |= static_cast<std::uint32_t>(!IsFinite(value[i]));
      bad |= static_cast<std::uint32_t>(!IsFinite(outputs_.log_prob[i]));
    }
    if (bad == 0) [[likely]] return;
    for (std::int32_t i = 0; i < count; ++i) {
      const bool is_value = !IsFinite(value[i]);
      const float number = is_value ? value[i] : outputs_.log_prob[i];
      if (IsFinite(number)) continue;
      throw SpecError(std::string("the policy returned a ") + (is_value ? "value" : "log_prob") +
                      " of " + std::to_string(number) + " for " + NameOf(first + i) +
                      ", expected a finite number: look at its weights and at the observation");
    }
  }
  static bool IsFinite(float x) {
    constexpr std::int32_t kExponent = 0x7F800000;
    return (std::bit_cast<std::int32_t>(x) & kExponent) != kExponent;
  }
  std::string NameOf(std::int32_t row) const {
    const std::int32_t env = first_env_ + row / of_.num_agents + rollout_.settings_.env_id_offset;
    const std::string name = "env_id " + std::to_string(env);
    if (!of_.group) return name;
    return "agent " + std::string(of_.group->name) + "_" + std::to_string(row % of_.num_agents) +
           " of " + name;
  }

  void WriteActions(std::int32_t first, std::int32_t count, std::int64_t at, std::uint8_t* actions,
                    std::int64_t action_bytes) const {
    const auto to = [&](std::int32_t env, std::int32_t agent) {
      return actions + env * action_bytes + of_.first_action + agent * of_.agent_action_bytes;
    };
    if (elements_.empty() && IsDiscrete(policy_.head.kind)) {
      // int64 as in Python, int32 for environments
      std::copy_n(outputs_.index, count, reinterpret_cast<std::int64_t*>(arrays_.action) + at);
      if (arrays_.action_bytes) std::copy_n(outputs_.index, count, arrays_.action_bytes + at);
      ForRows(first, count, [&](std::int32_t i, std::int32_t env, std::int32_t agent) {
        std::memcpy(to(env, agent), &outputs_.index[i], sizeof(std::int32_t));
      });
      return;
    }
    ForRows(first, count, [&](std::int32_t i, std::int32_t env, std::int32_t agent) {
      if (!elements_.empty()) {
        WriteElements(i, at + i, to(env, agent));
      } else if (of_.action->dtype == DType::kFloat32) {
        WriteBox<float>(i, at + i, to(env, agent));
      } else {
        WriteBox<double>(i, at + i, to(env, agent));
      }
    });
  }

  // Writes the same numbers to the rollout and to the pool, both as int32.
  void WriteElements(std::int32_t i, std::int64_t at, std::uint8_t* to) const {
    const std::size_t size = policy_.nvec.size();
    auto* chosen = reinterpret_cast<std::int32_t*>(arrays_.action);
    chosen += at * static_cast<std::int64_t>(size);
    auto* stored = reinterpret_cast<std::int32_t*>(to);
    for (std::size_t e = 0; e < size; ++e) {
      *chosen++ = *stored++ = elements_[e * kColumns + static_cast<std::size_t>(i)];
    }
  }

  // Writes a sample to the rollout unchanged, and to the pool clipped to the bounds of the space.
  template <typename Real>
  void WriteBox(std::int32_t i, std::int64_t at, std::uint8_t* to) const {
    const SpaceSpec& space = *of_.action;
    auto* sampled = reinterpret_cast<Real*>(arrays_.action) + at * box_size_;
    auto* stored = reinterpret_cast<Real*>(to);
    for (std::int64_t d = 0; d < box_size_; ++d) {
      const auto action = static_cast<Real>(outputs_.box[d * kColumns + i]);
      const std::int64_t bound = space.elementwise ? d : 0;
      *sampled++ = action;
      *stored++ = std::clamp(action, static_cast<Real>(space.low[bound]),
                             static_cast<Real>(space.high[bound]));
    }
  }

  // Values the final observations of episodes that were truncated.
  void BootstrapCut(std::int64_t at, const std::uint8_t* final_obs) {
    std::vector<std::uint8_t> obs(kColumns * ObsBytes());
    for (std::size_t first = 0; first < cut_.size(); first += kColumns) {
      const auto count =
          static_cast<std::int32_t>(std::min<std::size_t>(kColumns, cut_.size() - first));
      // gathers them for Forward, because they lie anywhere among the rows
      for (std::int32_t i = 0; i < count; ++i) {
        std::memcpy(obs.data() + i * obs_bytes_, final_obs + cut_[first + i] * obs_bytes_,
                    ObsBytes());
      }
      states_.LoadEach(std::span(cut_).subspan(first, static_cast<std::size_t>(count)),
                       scratch_.data());
      Forward(obs.data(), count);
      float value[kColumns];
      TakeValues(count, value);
      for (std::int32_t i = 0; i < count; ++i) {
        arrays_.bootstrap_value[at + cut_[first + i]] = value[i];
      }
    }
  }

  void ValueLast() {
    if (!policy_.has_value()) {
      std::fill_n(arrays_.last_value + range_.first, range_.count, 0.0f);
      return;
    }
    for (std::int32_t first = 0; first < range_.count; first += kColumns) {
      const std::int32_t count = std::min(kColumns, range_.count - first);
      states_.Load(first, scratch_.data());
      Forward(ObsAt(arrays_.steps) + first * obs_bytes_, count);
      TakeValues(count, arrays_.last_value + range_.first + first);
    }
  }

  // Estimates the returns of whole columns, which only this thread computes.
  void EstimateReturns() const {
    const std::int64_t first = range_.first;
    const Fragment<float> in{.steps = arrays_.steps,
                             .envs = range_.count,
                             .reward = arrays_.reward + first,
                             .value = arrays_.value + first,
                             .terminated = arrays_.terminated + first,
                             .truncated = arrays_.truncated + first,
                             .bootstrap_value = arrays_.bootstrap_value + first,
                             .last_value = arrays_.last_value + first,
                             .row = arrays_.rows};
    const Returns out{arrays_.advantage + first, arrays_.target + first};
    const ReturnsRule& rule = rollout_.settings_.rules.returns;
    if (rule.n > 0) {
      Nstep(in, rule.gamma, rule.n, out);
    } else {
      Gae(in, rule.gamma, rule.gae_lambda, out);
    }
  }

  void Digest() const {
    const SpaceSpec& space = *of_.observation;
    const std::vector<std::int64_t> shape(space.shape, space.shape + space.ndim);
    const RolloutColumns columns{.steps = arrays_.steps,
                                 .rows = arrays_.rows,
                                 .obs = arrays_.obs,
                                 .last_obs = arrays_.obs + obs_bytes_ * arrays_.rows * arrays_.steps,
                                 .cell_bytes = obs_bytes_,
                                 .part = NewestPart(shape, SizeOf(space.dtype)),
                                 .kind = FloatKindOf(space.dtype),
                                 .reward = arrays_.reward,
                                 .terminated = arrays_.terminated,
                                 .truncated = arrays_.truncated,
                                 .active = arrays_.active};
    DigestColumns(columns, range_.first, range_.count, arrays_.digests);
  }

  Rollout& rollout_;
  const std::size_t place_;  // index in the rollout's rows; for a group, its number
  const Rollout::Rows& of_;
  const NativePolicy& policy_;
  const RolloutArrays& arrays_;
  const std::int64_t obs_bytes_;
  const std::int64_t box_size_;
  std::vector<std::int32_t> elements_;  // a MultiDiscrete action's: (elements, kColumns)
  Scratch scratch_;                     // the network's rows
  Scratch box_;
  NoiseKeys keys_;
  HeadOutputs outputs_;
  StateColumns states_;

  // for the present environments
  std::vector<const EpisodeClock*> clocks_;  // the environments' clocks
  std::int32_t first_env_ = 0;
  EnvRange range_;  // the present rows
  std::vector<std::int32_t> cut_, ended_;  // in the present step
};

}  // namespace rollouts::policy
