// SPDX-License-Identifier: Apache-2.0
// A network with weights and a head: observations in, actions out.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rollouts/core/spec.h"
#include "rollouts/policy/heads.h"
#include "rollouts/policy/network.h"

namespace rollouts::policy {

// A policy. Immutable: new weights make a new one.
struct NativePolicy {
  std::shared_ptr<const Network> network;
  std::vector<float> params;  // packed by Network::Pack
  Head head;
  std::vector<float> initial = {};      // the states at the beginning of an episode
  std::vector<std::int32_t> nvec = {};  // for a kMultiCategorical head: n_0, n_1, ...
  std::vector<float> bounds = {};       // for a kTanhGaussian head, as in HeadInputs

  bool has_value() const { return network->num_outputs() > NumHeadInputs(head.kind); }
  // Throws SpecError unless the policy reads these observations and returns these actions.
  void CheckFits(const SpaceSpec& observation, const SpaceSpec& action) const;

 private:
  void CheckElements(const SpaceSpec& action) const;
  void CheckAction(const SpaceSpec& action) const;
};

// Bounds in the layout for heads, made of finite low and high (d), low below high.
std::vector<float> SquashingBounds(std::span<const float> low, std::span<const float> high);

// A head's choices for rows of observations; either index or box is null.
struct Actions {
  std::int64_t* index = nullptr;  // (rows,), or (rows, elements) for an action with several
  float* box = nullptr;           // (rows, d)
  float* log_prob = nullptr;      // (rows,)
  float* entropy = nullptr;
  const std::uint8_t* mask = nullptr;  // (rows, A): nonzero for allowed actions; null: all are
};

// Computes the outputs of a policy's network, including states, outside of a rollout. Each row is
// an observation followed by its states; `out[i]` is (rows, output_size(i)). With `keys` (3, rows),
// the env_id, episode and step of each row, it also computes the head's choices.
void Evaluate(const NativePolicy& policy, const float* obs, std::int64_t rows,
              std::span<float* const> out, const std::uint32_t* keys = nullptr,
              const Actions* actions = nullptr);

}  // namespace rollouts::policy
