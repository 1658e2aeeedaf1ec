// SPDX-License-Identifier: Apache-2.0
// Losses of groups of columns, and their gradients: plain data that kernels read.
#pragma once

#include "rollouts/policy/heads.h"

namespace rollouts::policy {

// One group of columns of a batch. A column that does not count has weight 0.
struct ActedColumns {
  const std::int32_t* index = nullptr;  // (elements, kColumns): of a discrete action
  const float* box = nullptr;           // (size, kColumns): of a continuous one, as a Gaussian drew it
  const float* inputs = nullptr;        // (all, kColumns): of the head, when the action was drawn
  float log_prob[kSpan] = {};           // as it was drawn
  float advantage[kSpan] = {};
  float target[kSpan] = {};  // the value's
  float value[kSpan] = {};   // as it was when the action was drawn
  float log_slope[kSpan] = {};  // its logarithm, where a function makes the action of what a Gaussian drew; else 0
  float weight[kSpan] = {};  // 1 over the rows of the minibatch, or 0
};

// Places for the gradients of a head's inputs and of the value; null: the network has none.
struct HeadGradients {
  float* first = nullptr;
  float* second = nullptr;
  float* value = nullptr;
};

// PPO's numbers (Schulman et al. 2017).
struct PpoRule {
  float low = 0.8f, high = 1.2f;  // limits of the ratio of probabilities
  bool is_plain = false;  // no ratio: the log-density times the advantage (Williams 1992)
  bool limits_value = false;
  float value_clip = 0;     // limit of the value's distance from what it was, if it is limited
  bool value_worse = true;    // the larger of the errors with and without that limit counts
  float value_weight = 0.5f;  // factor of the squared error
  bool is_huber = false;
  float huber = 0;  // size of an error beyond which its loss goes on straight (Huber 1964)
  bool caps_error = false;
  float error_cap = 0;     // limit of the squared error, if it is capped
  bool has_kl = false;
  float kl_weight = 0;     // factor of the KL divergence from what drew the action to what is now
  float entropy_weight = 0;
};

// Sums over the columns of a minibatch, each times its weight.
enum LossSum {
  kPolicyLoss,
  kValueLoss,
  kEntropy,
  kApproxKl,     // (ratio - 1) - log ratio (Schulman 2020)
  kClipped,      // share of ratios beyond the limit
  kError,        // the value's squared error without any limit
  kKl,           // the divergence that kl_weight is of
  kNumLossSums,
};

}  // namespace rollouts::policy
