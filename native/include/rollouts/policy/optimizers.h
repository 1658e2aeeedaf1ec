// SPDX-License-Identifier: Apache-2.0
// Numbers of one step of an optimiser: plain data that kernels read.
#pragma once

#include <cstdint>

namespace rollouts::policy {

// torch.optim.Adam and AdamW (Kingma and Ba 2015; Loshchilov and Hutter 2019).
struct AdamRule {
  float lr = 0;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 0;
  bool decays_apart = false;  // AdamW
  float step_size = 0;        // lr / (1 - beta1^t)
  float root_correction = 1;  // sqrt(1 - beta2^t)
};

}  // namespace rollouts::policy
