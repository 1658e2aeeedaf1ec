// SPDX-License-Identifier: Apache-2.0
// Actions made of a network's outputs: an action for each column, drawn with a random
// number that is a pure function of (policy seed, env_id, episode, step, element), and its
// log-density.
#pragma once

#include "rollouts/policy/instruction.h"

namespace rollouts::policy {

enum class HeadKind : std::int32_t {
  kCategorical,    // logits (n)
  kGaussian,       // mean, log_std (d)
  kTanhGaussian,   // mean, log_std (d); the action is tanh of the sample, scaled to its bounds
  kEpsilonGreedy,  // values of the actions (n)
  kMultiCategorical,  // logits (n_0 + n_1 + ...), one action for each n
};

struct Head {
  HeadKind kind = HeadKind::kCategorical;
  bool deterministic = false;  // the most probable action
  float epsilon = 0;
  // For kGaussian, the share of a step's noise that the next step forgets. Below 1 the noise is an
  // Ornstein-Uhlenbeck process, which begins at 0 with each episode.
  float damping = 1;
  std::uint64_t seed = 0;
};

// The number of a network's first outputs that a head reads; the value follows them.
ROLLOUTS_HD constexpr std::size_t NumHeadInputs(HeadKind kind) {
  return kind == HeadKind::kGaussian || kind == HeadKind::kTanhGaussian ? 2 : 1;
}

// Tells if actions are numbers of discrete choices, and not of a Box.
ROLLOUTS_HD constexpr bool IsDiscrete(HeadKind kind) { return NumHeadInputs(kind) == 1; }

// The env_id, episode and step of each column, from which its noise is computed.
struct NoiseKeys {
  std::uint32_t env_id[kSpan] = {};
  std::uint32_t episode[kSpan] = {};
  std::uint32_t step[kSpan] = {};
};

// Places of the outputs in the scratch memory, in floats.
struct HeadInputs {
  const float* first = nullptr;   // logits, values or mean, (size, kColumns)
  const float* second = nullptr;  // log_std
  std::int32_t size = 0;
  std::int32_t second_size = 0;  // `size`, or 1: shared by all
  const std::int32_t* nvec = nullptr;  // for an action with several elements
  std::int32_t num_elements = 0;
  // (5, size) for kTanhGaussian: low, high, middle, half of the width and the logarithm of that
  // half; null: -1 to 1.
  const float* bounds = nullptr;
};

// The results for one group of columns.
struct HeadOutputs {
  std::int32_t index[kSpan] = {};  // a discrete action
  std::int32_t* elements = nullptr;  // (num_elements, kColumns): the elements of an action
  float log_prob[kSpan] = {};
  float entropy[kSpan] = {};
  bool with_entropy = true;  // costs little, but is seldom wanted
  float* box = nullptr;      // (size, kColumns): a continuous action, or room to compute
};

}  // namespace rollouts::policy
