// SPDX-License-Identifier: Apache-2.0
#include "rollouts/policy/native_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "policy/columns.h"
#include "rollouts/policy/kernels.h"
#include "rollouts/support/errors.h"

namespace rollouts::policy {
namespace {

// Writes columns of one group as rows (count, size).
template <typename From, typename To>
void Scatter(const From* from, std::int32_t count, std::int32_t size, To* to) {
  for (std::int32_t i = 0; i < count; ++i) {
    for (std::int32_t k = 0; k < size; ++k) *to++ = from[k * kColumns + i];
  }
}

}  // namespace

void NativePolicy::CheckFits(const SpaceSpec& observation, const SpaceSpec& action) const {
  if (network->program().obs_size != observation.size()) {
    throw SpecError("the policy reads observations of " +
                    std::to_string(network->program().obs_size) +
                    " numbers, and those of the environments have " +
                    std::to_string(observation.size()));
  }
  head.kind == HeadKind::kMultiCategorical ? CheckElements(action) : CheckAction(action);
  // the value follows the head's inputs
  if (has_value() && network->output_size(NumHeadInputs(head.kind)) != 1) {
    throw SpecError("the policy's network gives " +
                    std::to_string(network->output_size(NumHeadInputs(head.kind))) +
                    " values for an observation, expected 1");
  }
}

void NativePolicy::CheckElements(const SpaceSpec& action) const {
  bool same = action.multi_discrete && action.dtype == DType::kInt32 &&
              action.size() == static_cast<std::int64_t>(nvec.size());
  for (std::size_t i = 0; same && i < nvec.size(); ++i) {
    same = action.high[action.elementwise ? i : 0] + 1 == static_cast<double>(nvec[i]);
  }
  if (!same) {
    throw SpecError("the policy chooses " + std::to_string(nvec.size()) +
                    " numbers of a MultiDiscrete action, and the environments' are not of these");
  }
}

void NativePolicy::CheckAction(const SpaceSpec& action) const {
  // the kind of action is checked first, because the other checks depend on it
  const bool discrete = IsDiscrete(head.kind);
  if (discrete != (action.n > 0)) {
    throw SpecError(
        discrete ? "the policy chooses one of several actions, and the environments' are a Box"
                 : "the policy's actions are a Box, and the environments' are not");
  }
  if (!discrete && action.dtype != DType::kFloat32 && action.dtype != DType::kFloat64) {
    throw SpecError("the policy's actions are floats, and the environments' are not");
  }
  const std::int64_t wanted = discrete ? action.n : action.size();
  if (network->output_size(0) != wanted) {
    throw SpecError("the policy's network says " + std::to_string(network->output_size(0)) +
                    " numbers of an action, expected " + std::to_string(wanted));
  }
  // a single standard deviation may be for all dimensions
  if (!discrete && network->output_size(1) != wanted && network->output_size(1) != 1) {
    throw SpecError("the policy's network gives " + std::to_string(network->output_size(1)) +
                    " standard deviations, expected " + std::to_string(wanted) + " or 1");
  }
}

std::vector<float> SquashingBounds(std::span<const float> low, std::span<const float> high) {
  std::vector<float> bounds(low.begin(), low.end());
  bounds.insert(bounds.end(), high.begin(), high.end());
  const std::size_t size = low.size();
  bounds.resize(5 * size);
  for (std::size_t d = 0; d < size; ++d) {
    const double from = static_cast<double>(low[d]), to = static_cast<double>(high[d]);
    bounds[2 * size + d] = static_cast<float>((to + from) / 2);
    bounds[3 * size + d] = static_cast<float>((to - from) / 2);
    bounds[4 * size + d] = static_cast<float>(std::log((to - from) / 2));
  }
  return bounds;
}

void MaskLogits(const NativePolicy& policy, const std::uint8_t* mask, std::int32_t count,
                float* rows) {
  const std::int32_t size = policy.network->output_size(0);
  float* const logits = rows + std::int64_t{policy.network->output_row(0)} * kColumns;
  const auto whole = std::span(&size, 1);
  const std::span<const std::int32_t> elements =
      policy.nvec.empty() ? whole : std::span<const std::int32_t>(policy.nvec);
  for (std::int32_t i = 0; i < count; ++i, mask += size) {
    std::int32_t first = 0;
    for (const std::int32_t n : elements) {
      bool any = false;
      for (std::int32_t a = first; a < first + n; ++a) {
        any |= mask[a] != 0;
        if (mask[a] == 0) logits[a * kColumns + i] = -std::numeric_limits<float>::infinity();
      }
      if (!any) throw SpecError("action_mask allows no action, expected at least one");
      first += n;
    }
  }
}

void Evaluate(const NativePolicy& policy, const float* obs, std::int64_t rows,
              std::span<float* const> out, const std::uint32_t* keys, const Actions* actions) {
  const Network& network = *policy.network;
  const Kernels& kernels = BestKernels();
  const auto steps = network.instructions();
  const std::int64_t size = network.input_size();
  // the same memory for all groups: each group overwrites the results of the one before
  Scratch scratch(std::int64_t{network.num_rows()} * kColumns);
  Scratch box(std::int64_t{network.output_size(0)} * kColumns);
  const auto num_elements = static_cast<std::int32_t>(policy.nvec.size());
  std::vector<std::int32_t> elements(static_cast<std::size_t>(num_elements * kColumns));
  for (std::int64_t first = 0; first < rows; first += kColumns) {
    const auto count = static_cast<std::int32_t>(std::min<std::int64_t>(kColumns, rows - first));
    GatherColumns(obs + first * size, count, size, scratch.data());
    kernels.forward(steps.data(), static_cast<std::int32_t>(steps.size()), policy.params.data(),
                    scratch.data(), count);
    if (actions && actions->mask) {
      MaskLogits(policy, actions->mask + first * network.output_size(0), count, scratch.data());
    }
    // copied before the next group overwrites them
    for (std::size_t o = 0; o < out.size(); ++o) {
      const std::int32_t features = network.output_size(o);
      Scatter(OutputRows(network, o, scratch.data()), count, features, out[o] + first * features);
    }
    if (!keys || !actions) continue;

    // keys are (3, rows): first all env_ids, then all episodes, then all steps
    NoiseKeys noise;
    std::copy_n(keys + first, count, noise.env_id);
    std::copy_n(keys + rows + first, count, noise.episode);
    std::copy_n(keys + 2 * rows + first, count, noise.step);
    HeadOutputs chosen;
    chosen.box = box.data();
    chosen.elements = elements.data();
    kernels.act(policy.head, HeadInputsOf(policy, scratch.data()), noise, chosen);
    std::copy_n(chosen.log_prob, count, actions->log_prob + first);
    std::copy_n(chosen.entropy, count, actions->entropy + first);
    if (actions->index && num_elements > 0) {
      Scatter(chosen.elements, count, num_elements, actions->index + first * num_elements);
    } else if (actions->index) {
      std::copy_n(chosen.index, count, actions->index + first);
    }
    if (actions->box) {
      const std::int32_t d = network.output_size(0);
      Scatter(chosen.box, count, d, actions->box + first * d);
    }
  }
}

}  // namespace rollouts::policy
