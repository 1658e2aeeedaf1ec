// SPDX-License-Identifier: Apache-2.0
// States of a recurrent policy for the present environments of a thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "policy/columns.h"
#include "rollouts/policy/rollout.h"

namespace rollouts::policy {

// States as columns, in the kernels' layout: (groups, state_size, kColumns). Environments are
// counted from the first of the range. Does nothing for a policy without memory.
class StateColumns {
 public:
  // Both must outlive this object; `most` is the size of the largest range.
  StateColumns(const NativePolicy& policy, const RolloutArrays& arrays, std::int32_t most)
      : network_(*policy.network),
        initial_(policy.initial),
        arrays_(arrays),
        size_(network_.state_size()) {
    const std::int64_t groups = (most + kColumns - 1) / kColumns;
    columns_.resize(static_cast<std::size_t>(groups * size_ * kColumns));
  }

  // Takes over the states of a range, and new ones where an episode begins.
  void Open(EnvRange range) {
    range_ = range;
    for (std::int32_t i = 0; size_ > 0 && i < range.count; ++i) {
      const std::int64_t env = range.first + i;
      arrays_.begins[env] ? Begin(i) : Put(i, arrays_.state + env * size_);
    }
  }

  // Writes states into the network's rows; call before it runs on the group from `first` on.
  void Load(std::int32_t first, float* rows) const {
    std::copy_n(columns_.data() + std::int64_t{first} * size_, size_ * kColumns, StateRows(rows));
  }

  // Does the same for environments that lie anywhere in the range.
  void LoadEach(std::span<const std::int32_t> envs, float* rows) const {
    for (std::size_t i = 0; i < envs.size(); ++i) {
      for (std::int32_t k = 0; k < size_; ++k) StateRows(rows)[k * kColumns + i] = At(envs[i], k);
    }
  }

  // Reads the new states; call after the network ran on the group.
  void Keep(std::int32_t first, const float* rows) {
    float* to = columns_.data() + std::int64_t{first} * size_;
    for (std::size_t i = 0; i < network_.program().states.size(); ++i) {
      const std::size_t output = network_.num_outputs() + i;
      const std::int32_t floats = network_.output_size(output) * kColumns;
      to = std::copy_n(OutputRows(network_, output, rows), floats, to);
    }
  }

  // Writes the states that belong to the observations of step t, where they are wanted.
  void Write(std::int32_t t) const {
    if (t >= arrays_.kept_states) return;
    const std::int64_t row = std::int64_t{t} * arrays_.rows + range_.first;
    for (std::int32_t i = 0; i < range_.count; ++i) Take(i, arrays_.policy_state + (row + i) * size_);
  }

  // Begins an episode with new states.
  void Begin(std::int32_t env) { Put(env, initial_.data()); }

  // Hands the states to the next Open for the same rollout.
  void Pause() const {
    for (std::int32_t i = 0; size_ > 0 && i < range_.count; ++i) {
      Take(i, arrays_.state + (range_.first + i) * std::int64_t{size_});
      arrays_.begins[range_.first + i] = 0;
    }
  }

  // Hands the states to the next rollout, and marks the environments whose episode ended in the
  // last step.
  void Close() const {
    const std::int64_t last = std::int64_t{arrays_.steps - 1} * arrays_.rows;
    for (std::int32_t i = 0; size_ > 0 && i < range_.count; ++i) {
      const std::int64_t env = range_.first + i;
      Take(i, arrays_.state + env * size_);
      arrays_.begins[env] = arrays_.terminated[last + env] | arrays_.truncated[last + env];
    }
  }

 private:
  // The rows of states, which follow those of the observation.
  float* StateRows(float* rows) const {
    return rows + std::int64_t{network_.program().obs_size} * kColumns;
  }
  std::size_t PlaceOf(std::int32_t env, std::int32_t k) const {
    const std::int64_t group = env / kColumns;
    return static_cast<std::size_t>((group * size_ + k) * kColumns + env % kColumns);
  }
  float At(std::int32_t env, std::int32_t k) const { return columns_[PlaceOf(env, k)]; }
  void Put(std::int32_t env, const float* state) {
    for (std::int32_t k = 0; k < size_; ++k) columns_[PlaceOf(env, k)] = state[k];
  }
  void Take(std::int32_t env, float* to) const {
    for (std::int32_t k = 0; k < size_; ++k) to[k] = At(env, k);
  }

  const Network& network_;
  const std::vector<float>& initial_;
  const RolloutArrays& arrays_;
  const std::int32_t size_;
  EnvRange range_;
  std::vector<float> columns_;
};

}  // namespace rollouts::policy
