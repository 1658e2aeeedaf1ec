// SPDX-License-Identifier: Apache-2.0
// dm_control's acrobot: two links with a motor between them swing up to a target.
#pragma once

#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts::dmc {

class Acrobot final : public Task {
 public:
  Acrobot(Physics& physics, bool sparse)
      : Task(physics),
        margin_(sparse ? 0 : 1),
        joints_{PositionOf("shoulder"), PositionOf("elbow")},
        upper_(BodyRotation("upper_arm")),
        lower_(BodyRotation("lower_arm")),
        tip_(SitePosition("tip")),
        target_(SitePosition("target")),
        target_site_(Id(ModelObject::kSite, "target")) {}

  DataArrays Reads() const override { return kXmat | kSiteXpos; }
  void DrawStart(Rng& rng) override {
    for (const std::int32_t joint : joints_) physics_.start().qpos[joint] = rng.Uniform(-kPi, kPi);
  }

  double Reward() const override {
    const double radius = model_.site_size[3 * target_site_];
    return Tolerance(mujoco::Distance(target_, tip_), {0, radius}, margin_);
  }

  void Observe(Observation& obs) const override {
    obs.Begin("orientations");
    // what is horizontal of their z axes, then what is vertical
    for (const std::int32_t at : {2, 8}) {
      obs.Put(upper_[at]);
      obs.Put(lower_[at]);
    }
    obs.Vector("velocity", data_.qvel, model_.nv);
  }

 private:
  const double margin_;
  const std::int32_t joints_[2];
  const double* const upper_;
  const double* const lower_;
  const double* const tip_;
  const double* const target_;
  const std::int32_t target_site_;
};

inline constexpr TaskEntry kAcrobotTasks[] = {
    {"AcrobotSwingup-v1", 0, 5'000, Make<Acrobot, false>},
    {"AcrobotSwingupSparse-v1", 0, 5'000, Make<Acrobot, true>},
};

}  // namespace rollouts::dmc
