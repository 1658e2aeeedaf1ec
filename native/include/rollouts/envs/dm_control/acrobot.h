// SPDX-License-Identifier: Apache-2.0
// dm_control's acrobot: two links with a motor between them swing up to a target.
#pragma once

#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

struct Acrobot : SuiteTask {
  static constexpr DataArrays kReads = kXmat | kSiteXpos;
  double margin;
  std::int32_t joints[2];
  std::int32_t arms[2];
  std::int32_t tip;
  std::int32_t target;

  Acrobot(const auto& model, bool sparse)
      : margin(sparse ? 0 : 1),
        joints{model.Position("shoulder"), model.Position("elbow")},
        arms{model.Body("upper_arm"), model.Body("lower_arm")},
        tip(model.Site("tip")),
        target(model.Site("target")) {}

  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const {
    for (const std::int32_t joint : joints) start.qpos[joint] = rng.Uniform(-kPi, kPi);
  }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    const auto* const sites = sim.data.site_xpos;
    const double radius = sim.model.site_size[3 * target];
    return Tolerance(mujoco::Distance(sites + 3 * target, sites + 3 * tip), {0, radius}, margin);
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    obs.Begin("orientations");
    // the horizontal components of the arms' z axes, then the vertical ones
    for (std::int32_t at = 2; at <= 8; at += 6) {
      for (const std::int32_t arm : arms) obs.Put(sim.data.xmat[9 * arm + at]);
    }
    obs.Vector("velocity", sim.data.qvel, sim.model.nv);
  }
};

template <typename Entry>
inline constexpr Entry kAcrobotTasks[] = {
    {"AcrobotSwingup-v1", 0, 5'000, Make<Entry, Acrobot, false>},
    {"AcrobotSwingupSparse-v1", 0, 5'000, Make<Entry, Acrobot, true>},
};

}  // namespace rollouts::dmc
