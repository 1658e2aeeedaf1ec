// SPDX-License-Identifier: Apache-2.0
// dm_control's humanoid_CMU: the humanoid of the CMU's motion capture stands, walks or runs.
#pragma once

#include "rollouts/envs/dm_control/humanoid.h"

namespace rollouts::dmc {

struct HumanoidCmu : HumanoidTask {
  HumanoidCmu(const auto& model, double speed)
      : HumanoidTask(
            model, {"thorax", 7, "thorax_subtreelinvel", {"lhand", "lfoot", "rhand", "rfoot"}},
            speed, /*pure_state=*/false) {}
};

inline constexpr double kHumanoidCmuStep = 0.02;  // s
template <typename Entry>
inline constexpr Entry kHumanoidCmuTasks[] = {
    {"HumanoidCMUStand-v1", kHumanoidCmuStep, 60'000, Make<Entry, HumanoidCmu, 0>},
    {"HumanoidCMUWalk-v1", kHumanoidCmuStep, 60'000, Make<Entry, HumanoidCmu, 1>},
    {"HumanoidCMURun-v1", kHumanoidCmuStep, 60'000, Make<Entry, HumanoidCmu, 10>},
};

}  // namespace rollouts::dmc
