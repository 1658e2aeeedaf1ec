// SPDX-License-Identifier: Apache-2.0
// dm_control's finger: it spins a free body, or turns it so that its tip is in a target.
#pragma once

#include <cmath>

#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts::dmc {

// The common part of both tasks: observations come from sensors.
class Finger : public Task {
 public:
  explicit Finger(Physics& physics)
      : Task(physics),
        hinge_velocity_(Sensor("hinge_velocity")),
        hinge_(VelocityOf("hinge")),
        tip_site_(Id(ModelObject::kSite, "tip")),
        target_site_(Id(ModelObject::kSite, "target")),
        target_(Sensor("target")),
        tip_(Sensor("tip")),
        spinner_(Sensor("spinner")),
        proximal_(Sensor("proximal")),
        distal_(Sensor("distal")),
        proximal_velocity_(Sensor("proximal_velocity")),
        distal_velocity_(Sensor("distal_velocity")),
        touch_top_(Sensor("touchtop")),
        touch_bottom_(Sensor("touchbottom")) {}

  void DrawStart(Rng& rng) override { RandomizeJointsApart(physics_, rng); }

  void Observe(Observation& obs) const override {
    obs.Begin("position");
    obs.Put(*proximal_);
    obs.Put(*distal_);
    obs.Put(tip_[0] - spinner_[0]);
    obs.Put(tip_[2] - spinner_[2]);
    obs.Begin("velocity");
    obs.Put(*proximal_velocity_);
    obs.Put(*distal_velocity_);
    obs.Put(*hinge_velocity_);
    obs.Begin("touch");
    obs.Put(std::log1p(*touch_top_));
    obs.Put(std::log1p(*touch_bottom_));
  }

 protected:
  const double* const hinge_velocity_;
  const std::int32_t hinge_;
  const std::int32_t tip_site_;
  const std::int32_t target_site_;
  const double* const target_;
  const double* const tip_;
  const double* const spinner_;

 private:
  const double* const proximal_;
  const double* const distal_;
  const double* const proximal_velocity_;
  const double* const distal_velocity_;
  const double* const touch_top_;
  const double* const touch_bottom_;
};

class FingerSpin final : public Finger {
 public:
  using Finger::Finger;

  void DrawModel(Rng&) override {
    physics_.Own("dof_damping")[hinge_] = 0.03;
    const auto colours = physics_.Own<float>("site_rgba");  // neither is to be seen
    colours[4 * target_site_ + 3] = 0;
    colours[4 * tip_site_ + 3] = 0;
  }

  double Reward() const override {
    constexpr double kSpinVelocity = 15;  // rad/s
    return *hinge_velocity_ <= -kSpinVelocity;
  }
};

class FingerTurn final : public Finger {
 public:
  FingerTurn(Physics& physics, bool hard)
      : Finger(physics),
        target_radius_(hard ? 0.03 : 0.07),
        cap_(Id(ModelObject::kGeom, "cap1")),
        hinge_position_(BodyPosition("spinner")) {}

  // The target is where the tip comes when the body turns by any angle.
  void DrawStart(Rng& rng) override {
    const double angle = rng.Uniform(-kPi, kPi);
    const double* size = model_.geom_size + 3 * cap_;
    const double radius = size[0] + size[1] + size[2];
    double* const position = &physics_.Own("site_pos")[3 * target_site_];
    position[0] = hinge_position_[0] + radius * std::sin(angle);
    position[2] = hinge_position_[2] + radius * std::cos(angle);
    physics_.Own("site_size")[3 * target_site_] = target_radius_;
    Finger::DrawStart(rng);
  }

  double Reward() const override { return DistanceToTarget() <= 0; }

  void Observe(Observation& obs) const override {
    Finger::Observe(obs);
    obs.Begin("target_position");
    obs.Put(target_[0] - spinner_[0]);
    obs.Put(target_[2] - spinner_[2]);
    obs.Scalar("dist_to_target", DistanceToTarget());
  }

 private:
  // Measured from the target's surface; negative inside.
  double DistanceToTarget() const {
    double to_target[2];
    for (std::int32_t i = 0; i < 2; ++i) {
      const std::int32_t axis = 2 * i;
      to_target[i] = (target_[axis] - spinner_[axis]) - (tip_[axis] - spinner_[axis]);
    }
    return mujoco::Norm(to_target, 2) - model_.site_size[3 * target_site_];
  }

  const double target_radius_;  // metres
  const std::int32_t cap_;
  const double* const hinge_position_;
};

inline constexpr TaskEntry kFingerTasks[] = {
    {"FingerSpin-v1", 0.02, 5'000, Make<FingerSpin>},
    {"FingerTurnEasy-v1", 0.02, 5'000, Make<FingerTurn, false>},
    {"FingerTurnHard-v1", 0.02, 5'000, Make<FingerTurn, true>},
};

}  // namespace rollouts::dmc
