// SPDX-License-Identifier: Apache-2.0
// Losses for groups of columns, and their gradients: plain data that kernels read.
#pragma once

#include "rollouts/policy/heads.h"

namespace rollouts::policy {

// One group of columns of a batch. A column that does not count has weight 0.
struct ActedColumns {
  const std::int32_t* index = nullptr;  // (elements, kColumns): a discrete action
  const float* box = nullptr;           // (size, kColumns): a continuous action before squashing
  const float* inputs = nullptr;        // (all, kColumns): inputs of the head at the draw
  float log_prob[kSpan] = {};           // when the action was drawn
  float advantage[kSpan] = {};
  float target[kSpan] = {};  // for the value
  float value[kSpan] = {};   // when the action was drawn
  float log_slope[kSpan] = {};  // log of the slope from sample to action; 0: they are equal
  float weight[kSpan] = {};  // 1 over the rows of the minibatch, or 0
};

// Places for the gradients of a head's inputs and of the value; null: the network does not have
// this output.
struct HeadGradients {
  float* first = nullptr;
  float* second = nullptr;
  float* value = nullptr;
};

// Settings of PPO's loss (Schulman et al. 2017).
struct PpoRule {
  float low = 0.8f, high = 1.2f;  // limits of the ratio of probabilities
  bool is_plain = false;  // no ratio: the log-density times the advantage (Williams 1992)
  bool limits_value = false;
  float value_clip = 0;     // limit of the value's change, if it is limited
  bool value_worse = true;    // the larger of the errors with and without that limit counts
  float value_weight = 0.5f;  // factor of the squared error
  bool is_huber = false;
  float huber = 0;  // error beyond which the loss is linear (Huber 1964)
  bool caps_error = false;
  float error_cap = 0;     // limit of the squared error, if it is capped
  bool has_kl = false;
  float kl_weight = 0;     // factor of the KL divergence from the former distribution
  float entropy_weight = 0;
};

// Sums over the columns of a minibatch, each term times its column's weight.
enum LossSum {
  kPolicyLoss,
  kValueLoss,
  kEntropy,
  kApproxKl,     // (ratio - 1) - log ratio (Schulman 2020)
  kClipped,      // share of ratios beyond the limit
  kError,        // the value's squared error without limits
  kKl,           // the divergence that kl_weight multiplies
  kNumLossSums,
};

}  // namespace rollouts::policy
