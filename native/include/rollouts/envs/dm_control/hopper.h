// SPDX-License-Identifier: Apache-2.0
// dm_control's hopper: one leg in a plane stands or hops.
#pragma once

#include <cmath>

#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"

namespace rollouts::dmc {

class Hopper final : public Task {
 public:
  Hopper(Physics& physics, bool hopping)
      : Task(physics),
        hopping_(hopping),
        torso_(data_.xipos + 3 * Id(ModelObject::kBody, "torso")),
        foot_(data_.xipos + 3 * Id(ModelObject::kBody, "foot")),
        velocity_(Sensor("torso_subtreelinvel")),
        touch_toe_(Sensor("touch_toe")),
        touch_heel_(Sensor("touch_heel")) {}

  DataArrays Reads() const override { return kXipos | kSensordata; }
  void DrawStart(Rng& rng) override { RandomizeJoints(physics_, rng); }

  double Reward() const override {
    constexpr double kStandHeight = 0.6;  // m
    constexpr double kHopSpeed = 2;       // m/s
    const double standing = Tolerance(torso_[2] - foot_[2], {kStandHeight, 2});
    if (hopping_) {
      return standing *
             Tolerance(velocity_[0], {kHopSpeed, kInf}, kHopSpeed / 2, Sigmoid::kLinear, 0.5);
    }
    return standing * ((SmallControl(data_.ctrl, model_.nu) + 4) / 5);
  }

  void Observe(Observation& obs) const override {
    obs.Vector("position", data_.qpos + 1, model_.nq - 1);
    obs.Vector("velocity", data_.qvel, model_.nv);
    obs.Begin("touch");
    obs.Put(std::log1p(*touch_toe_));
    obs.Put(std::log1p(*touch_heel_));
  }

 private:
  const bool hopping_;
  const double* const torso_;
  const double* const foot_;
  const double* const velocity_;
  const double* const touch_toe_;
  const double* const touch_heel_;
};

inline constexpr TaskEntry kHopperTasks[] = {
    {"HopperHop-v1", 0.02, 8'000, Make<Hopper, true>},
    {"HopperStand-v1", 0.02, 8'000, Make<Hopper, false>},
};

}  // namespace rollouts::dmc
