// SPDX-License-Identifier: Apache-2.0
// Settings of one step of an optimiser: plain data that kernels read.
#pragma once

#include <cstdint>

namespace rollouts::policy {

// Adam (Kingma and Ba 2015), AdamW (Loshchilov and Hutter 2019), RMSprop (Hinton 2012) and gradient
// descent with momentum, as in torch.optim. kRmspropTf is RMSprop as in TensorFlow, with eps under
// the root; kNesterov is kSgd with Nesterov's momentum.
enum class OptimizerKind : std::int32_t { kAdam, kAdamW, kRmsprop, kRmspropTf, kSgd, kNesterov };

struct StepRule {
  OptimizerKind kind = OptimizerKind::kAdam;
  float lr = 0;
  float beta1 = 0.9f;    // for Adam: share of the mean that stays
  float beta2 = 0.999f;  // share of the mean square that stays; for kSgd the momentum
  float eps = 1e-8f;
  float weight_decay = 0;
  float step_size = 0;   // for Adam: lr / (1 - beta1^t)
  float root_scale = 1;  // for Adam: 1 / sqrt(1 - beta2^t)
};

}  // namespace rollouts::policy
