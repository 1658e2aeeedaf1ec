// SPDX-License-Identifier: Apache-2.0
// One row of a policy's launch: an environment, or an agent of one group. Takes the results of the
// last step, draws the next action from the network's outputs and estimates returns; kernels
// compute the network between these calls.
#pragma once

#include "rollouts/policy/head_loops.h"
#include "rollouts/policy/policy_launch.h"

namespace rollouts::policy {

class PolicyRow {
 public:
  // `outputs`: the row's column in the network's outputs, whose features are kColumns apart.
  // `room`: a column of the same kind for the numbers of an action and its elements.
  ROLLOUTS_HD PolicyRow(const PolicyLaunch& launch, std::int64_t row, float* outputs, float* room)
      : launch_(launch),
        policy_(launch.policy),
        row_(row),
        env_(row / launch.agents.num_agents),
        outputs_(outputs),
        room_(room) {}

  // Tells whether the network must value the final observation of the last step's episode. Marks an
  // agent that left earlier as truncated when the episode of the others ends.
  ROLLOUTS_HD bool LacksFinalValue() const {
    const SeenRows& seen = launch_.seen;
    bool truncated = seen.truncated[row_] != 0;
    bool active = true;
    if (seen.active) {
      active = seen.active[row_] != 0;
      // an agent that left before waits for the others
      truncated |= seen.ended[env_] != 0 && !active;
      seen.truncated[row_] = truncated;
    }
    return truncated && seen.terminated[row_] == 0 && active && policy_.value.size > 0;
  }

  // Takes the results of the last step. `has_final_value`: LacksFinalValue returned true, and the
  // outputs are those of the final observation.
  ROLLOUTS_HD void See(bool has_final_value) const {
    const SeenRows& seen = launch_.seen;
    float value = 0;
    if (has_final_value) {
      value = Value();
      CheckFinite(value);
    }
    seen.bootstrap_value[row_] = value;
    // only now, because final observations are valued with the states of the episode that ended
    const bool is_over = seen.terminated[row_] != 0 || seen.truncated[row_] != 0;
    if (is_over) BeginEpisode();
    if (launch_.begins && !launch_.chosen.log_prob) launch_.begins[row_] = is_over;
  }

  // Prepares the states, before the network runs on the next observation.
  ROLLOUTS_HD void BeginStep() const {
    const ChosenRows& chosen = launch_.chosen;
    // after a reset, the clock is the only sign that an episode begins
    const bool begins = launch_.begins && launch_.begins[row_] != 0;
    if (begins || launch_.clock.elapsed_steps[env_] == 0) BeginEpisode();
    if (chosen.policy_state) {
      float* to = chosen.policy_state + row_ * policy_.state_size;
      for (std::int32_t k = 0; k < policy_.state_size; ++k) to[k] = *StateAt(k);
    }
  }

  // Draws the action from the network's outputs and writes it with its log_prob and value.
  ROLLOUTS_HD void Choose() const {
    const ChosenRows& chosen = launch_.chosen;
    KeepStates();
    HeadOutputs out;
    out.with_entropy = chosen.entropy != nullptr;
    out.box = room_;
    out.elements = reinterpret_cast<std::int32_t*>(out.box + policy_.first.size * kColumns);
    Act(policy_.head, Inputs(), Keys(), out);
    const float value = Value();
    const bool is_good = CheckFinite(value) && CheckFinite(out.log_prob[0]);
    chosen.log_prob[row_] = out.log_prob[0];
    chosen.value[row_] = value;
    if (chosen.entropy) chosen.entropy[row_] = out.entropy[0];
    if (chosen.inputs) TakeInputs();
    WriteAction(out, is_good);
  }

  // Takes the value of a rollout's last observation from the outputs, and estimates the returns.
  ROLLOUTS_HD void End() const {
    const float value = Value();
    CheckFinite(value);
    launch_.last_value[row_] = value;
    if (launch_.returns.out.advantage) EstimateReturns();
  }

  ROLLOUTS_HD float* StateAt(std::int32_t k) const {
    return launch_.state + k * launch_.num_rows + row_;
  }

 private:
  ROLLOUTS_HD float Value() const {
    return policy_.value.size > 0 ? outputs_[policy_.value.row * kColumns] : 0;
  }

  ROLLOUTS_HD HeadInputs Inputs() const {
    HeadInputs inputs;
    inputs.first = outputs_ + std::int64_t{policy_.first.row} * kColumns;
    inputs.size = policy_.first.size;
    inputs.second = outputs_ + std::int64_t{policy_.second.row} * kColumns;
    inputs.second_size = policy_.second.size;
    inputs.bounds = policy_.bounds;
    inputs.nvec = policy_.nvec;
    inputs.num_elements = policy_.num_elements;
    return inputs;
  }

  // Returns the same keys as PolicyRows::KeysOf on the CPU.
  ROLLOUTS_HD NoiseKeys Keys() const {
    const KernelAgents& agents = launch_.agents;
    const auto agent = static_cast<std::int32_t>(row_ % agents.num_agents);
    NoiseKeys keys;
    keys.env_id[0] = launch_.clock.env_id[env_] * static_cast<std::uint32_t>(agents.all_agents) +
                     static_cast<std::uint32_t>(agents.first_agent + agent);
    keys.episode[0] = launch_.clock.next_episode[env_] - 1;
    keys.step[0] = static_cast<std::uint32_t>(launch_.clock.elapsed_steps[env_]);
    return keys;
  }

  ROLLOUTS_HD void TakeInputs() const {
    float* to = launch_.chosen.inputs + row_ * (policy_.first.size + policy_.second.size);
    to = TakeOutput(policy_.first, to);
    TakeOutput(policy_.second, to);
  }

  ROLLOUTS_HD float* TakeOutput(const OutputPlace& place, float* to) const {
    for (std::int32_t k = 0; k < place.size; ++k) *to++ = outputs_[(place.row + k) * kColumns];
    return to;
  }

  // Writes the sampled action to the rollout, and the clipped one for the environment; 0 instead if
  // the outputs are not finite, which CheckFinite reports.
  ROLLOUTS_HD void WriteAction(const HeadOutputs& out, bool is_good) const {
    const ChosenRows& chosen = launch_.chosen;
    if (policy_.num_elements > 0) {
      auto* to = static_cast<std::int32_t*>(chosen.action) + row_ * policy_.num_elements;
      for (std::int32_t e = 0; e < policy_.num_elements; ++e) to[e] = out.elements[e * kColumns];
    } else if (IsDiscrete(policy_.head.kind)) {
      static_cast<std::int64_t*>(chosen.action)[row_] = out.index[0];
    } else {
      const std::int64_t at = row_ * policy_.first.size;
      for (std::int32_t d = 0; d < policy_.first.size; ++d) {
        const float sampled = out.box[d * kColumns];
        static_cast<float*>(chosen.action)[at + d] = sampled;
        const float low = chosen.low[d], high = chosen.high[d];
        const float clipped = sampled < low ? low : high < sampled ? high : sampled;
        chosen.env_action[at + d] = is_good ? clipped : 0;
      }
    }
  }

  ROLLOUTS_HD void EstimateReturns() const {
    const ReturnsRows& returns = launch_.returns;
    Fragment<float> own = returns.fragment;
    own.envs = 1;
    own.reward += row_;
    own.value += row_;
    own.terminated += row_;
    own.truncated += row_;
    own.bootstrap_value += row_;
    own.last_value += row_;
    const Returns out{returns.out.advantage + row_, returns.out.target + row_};
    if (returns.n > 0) {
      Nstep(own, returns.gamma, returns.n, out);
    } else {
      Gae(own, returns.gamma, returns.gae_lambda, out);
    }
  }

  ROLLOUTS_HD void BeginEpisode() const {
    for (std::int32_t k = 0; k < policy_.state_size; ++k) *StateAt(k) = policy_.initial[k];
  }
  ROLLOUTS_HD void KeepStates() const {
    std::int32_t k = 0;
    for (std::int32_t s = 0; s < policy_.num_states; ++s) {
      const OutputPlace place = policy_.states[s];
      for (std::int32_t i = 0; i < place.size; ++i, ++k) {
        *StateAt(k) = outputs_[(place.row + i) * kColumns];
      }
    }
  }

  // Reports a number that is not finite. A kernel cannot throw: the host reads the fault later and
  // names the environment.
  ROLLOUTS_HD bool CheckFinite(float number) const {
    const bool is_good = number - number == 0;
    if (!is_good) Report(launch_.fault, launch_.clock.env_id[env_], Fault::kPolicy);
    return is_good;
  }

  const PolicyLaunch& launch_;
  const KernelPolicy& policy_;
  const std::int64_t row_;
  const std::int64_t env_;
  float* const outputs_;
  float* const room_;
};

}  // namespace rollouts::policy
