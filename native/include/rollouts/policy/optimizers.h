// SPDX-License-Identifier: Apache-2.0
// Numbers of one step of an optimiser: plain data that kernels read.
#pragma once

#include <cstdint>

namespace rollouts::policy {

// Adam (Kingma and Ba 2015), AdamW (Loshchilov and Hutter 2019), RMSprop (Hinton 2012) and gradient
// descent with momentum as torch.optim has them; kRmspropTf is RMSprop as TensorFlow has it, with eps
// under the root, and kNesterov is kSgd with Nesterov's momentum.
enum class OptimizerKind : std::int32_t { kAdam, kAdamW, kRmsprop, kRmspropTf, kSgd, kNesterov };

struct StepRule {
  OptimizerKind kind = OptimizerKind::kAdam;
  float lr = 0;
  float beta1 = 0.9f;    // Adam's: share of the mean that stays
  float beta2 = 0.999f;  // share of the mean square that stays; of kSgd the momentum
  float eps = 1e-8f;
  float weight_decay = 0;
  float step_size = 0;   // Adam's: lr / (1 - beta1^t)
  float root_scale = 1;  // Adam's: 1 / sqrt(1 - beta2^t)
};

}  // namespace rollouts::policy
