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

// Immutable: new weights are a new one.
struct NativePolicy {
  std::shared_ptr<const Network> network;
  std::vector<float> params;  // as Network::Pack gives them
  Head head;
  std::vector<float> initial = {};      // what is remembered when an episode begins: the states
  std::vector<std::int32_t> nvec = {};  // for a kMultiCategorical head: n_0, n_1, ...
  std::vector<float> bounds = {};       // for a kTanhGaussian head, as HeadInputs has them

  bool has_value() const { return network->num_outputs() > NumHeadInputs(head.kind); }
  // Throws SpecError unless it reads these observations and gives these actions.
  void CheckFits(const SpaceSpec& observation, const SpaceSpec& action) const;

 private:
  void CheckElements(const SpaceSpec& action) const;
  void CheckAction(const SpaceSpec& action) const;
};

// Bounds as heads take them, of low and high (d) that are below each other and finite.
std::vector<float> SquashingBounds(std::span<const float> low, std::span<const float> high);

// A head's choices for rows of observations; one of index and box is null.
struct Actions {
  std::int64_t* index = nullptr;  // (rows,), or (rows, elements) of an action with several
  float* box = nullptr;           // (rows, d)
  float* log_prob = nullptr;      // (rows,)
  float* entropy = nullptr;
  const std::uint8_t* mask = nullptr;  // (rows, A): nonzero for what may be chosen; null: anything
};

// The outputs of a policy's network, states among them, for rows of observations with the states
// behind them, outside of a rollout: `out[i]` is (rows, output_size(i)). With `keys` (3, rows), the
// env_id, episode and step of each row, also what its head chooses.
void Evaluate(const NativePolicy& policy, const float* obs, std::int64_t rows,
              std::span<float* const> out, const std::uint32_t* keys = nullptr,
              const Actions* actions = nullptr);

}  // namespace rollouts::policy
