// SPDX-License-Identifier: Apache-2.0
// dm_control's humanoid_CMU: the humanoid of the CMU's motion capture stands, walks or runs.
#pragma once

#include "rollouts/envs/dm_control/humanoid.h"

namespace rollouts::dmc {

class HumanoidCmu final : public HumanoidTask {
 public:
  HumanoidCmu(Physics& physics, int speed)
      : HumanoidTask(
            physics,
            {"thorax", 7, "thorax_subtreelinvel", {"lhand", "lfoot", "rhand", "rfoot"}},
            speed, /*pure_state=*/false) {}
};

inline constexpr double kHumanoidCmuStep = 0.02;  // s
inline constexpr TaskEntry kHumanoidCmuTasks[] = {
    {"HumanoidCMUStand-v1", kHumanoidCmuStep, 60'000, Make<HumanoidCmu, 0>},
    {"HumanoidCMUWalk-v1", kHumanoidCmuStep, 60'000, Make<HumanoidCmu, 1>},
    {"HumanoidCMURun-v1", kHumanoidCmuStep, 60'000, Make<HumanoidCmu, 10>},
};

}  // namespace rollouts::dmc
