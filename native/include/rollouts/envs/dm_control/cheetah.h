// SPDX-License-Identifier: Apache-2.0
// dm_control's cheetah: two legs in a plane run in the direction of x.
#pragma once

#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/dm_control/rewards.h"

namespace rollouts::dmc {

class Cheetah final : public Task {
 public:
  explicit Cheetah(Physics& physics) : Task(physics), velocity_(Sensor("torso_subtreelinvel")) {}

  DataArrays Reads() const override { return kSensordata; }
  void DrawStart(Rng& rng) override {
    const StartView start = physics_.start();
    for (std::int32_t i = 0; i < model_.njnt; ++i) {
      if (!physics_.JointLimited(i)) continue;
      start.qpos[i] = rng.Uniform(model_.jnt_range[2 * i], model_.jnt_range[2 * i + 1]);
    }
  }
  // it falls to the ground
  std::int32_t SubstepsToRest() const override { return 200; }

  double Reward() const override {
    constexpr double kRunSpeed = 10;  // m/s
    return Tolerance(velocity_[0], {kRunSpeed, kInf}, kRunSpeed, Sigmoid::kLinear, 0);
  }

  void Observe(Observation& obs) const override {
    obs.Vector("position", data_.qpos + 1, model_.nq - 1);
    obs.Vector("velocity", data_.qvel, model_.nv);
  }

 private:
  const double* const velocity_;
};

inline constexpr TaskEntry kCheetahTasks[] = {{"CheetahRun-v1", 0.01, 8'000, Make<Cheetah>}};

}  // namespace rollouts::dmc
