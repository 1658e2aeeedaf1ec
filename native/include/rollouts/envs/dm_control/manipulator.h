// SPDX-License-Identifier: Apache-2.0
// dm_control's manipulator: an arm brings a ball or a peg to a target, or inserts it there.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "rollouts/envs/dm_control/planar_arm.h"
#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"

namespace rollouts::dmc {

class Manipulator final : public PlanarArm {
 public:
  Manipulator(Physics& physics, bool peg, bool insert)
      : PlanarArm(physics),
        peg_(peg),
        body_pos_(physics.Own("body_pos")),
        body_quat_(physics.Own("body_quat")),
        hand_(Id(ModelObject::kBody, "hand")),
        target_(Id(ModelObject::kBody, peg ? "target_peg" : "target_ball")),
        receptacle_(insert ? Id(ModelObject::kBody, peg ? "slot" : "cup") : kNone),
        grasp_(SitePosition("grasp")),
        grasp_rotation_(SiteRotation("grasp")) {
    const std::string object = peg ? "peg" : "ball";
    object_ = Id(ModelObject::kBody, object);
    for (std::int32_t i = 0; i < 3; ++i) {
      const std::string joint = object + "_" + "xzy"[i];
      positions_[i] = PositionOf(joint);
      velocities_[i] = VelocityOf(joint);
    }
    const char* const sensors[] = {"palm_touch", "finger_touch", "thumb_touch", "fingertip_touch",
                                   "thumbtip_touch"};
    for (std::int32_t i = 0; i < kNumTouch; ++i) touch_[i] = Sensor(sensors[i]);
    if (peg) {
      pairs_[0] = {SitePosition("peg_grasp"), grasp_};
      pairs_[1] = {SitePosition("peg_pinch"), SitePosition("pinch")};
      pairs_[2] = {SitePosition("peg"), SitePosition("target_peg")};
      pairs_[3] = {SitePosition("target_peg_tip"), SitePosition("peg_tip")};
    } else {
      pairs_[0] = {SitePosition("ball"), SitePosition("target_ball")};
    }
  }

  void DrawStart(Rng& rng) override {
    DrawApart(physics_, [&] {
      DrawArm(rng);
      const Pose target = DrawTarget(rng);
      const Pose object = DrawObject(rng, target);
      double* const qpos = physics_.start().qpos;
      qpos[positions_[0]] = object.x;
      qpos[positions_[1]] = object.z;
      qpos[positions_[2]] = object.angle;
    });
  }

  double Reward() const override {
    if (!peg_) return IsClose(pairs_[0]);
    const double grasping = (IsClose(pairs_[0]) + IsClose(pairs_[1])) / 2;
    const double bringing = (IsClose(pairs_[2]) + IsClose(pairs_[3])) / 2;
    return std::max(bringing, grasping / 3);
  }

  void Observe(Observation& obs) const override {
    PutArm(obs);
    obs.Begin("touch");
    for (const double* touch : touch_) obs.Put(std::log1p(*touch));
    obs.Begin("hand_pos");
    PutPose(hand_, obs);
    obs.Begin("object_pos");
    PutPose(object_, obs);
    obs.Begin("object_vel");
    for (const std::int32_t velocity : velocities_) obs.Put(data_.qvel[velocity]);
    obs.Begin("target_pos");
    PutPose(target_, obs);
  }

 private:
  static constexpr std::int32_t kNone = -1;
  static constexpr std::int32_t kNumTouch = 5;

  // A place and an angle in the plane; metres and radians.
  struct Pose {
    double x;
    double z;
    double angle;
  };
  // Two sites that are to meet.
  struct Pair {
    const double* one;
    const double* other;
  };

  static double IsClose(const Pair& pair) {
    constexpr double kClose = 0.01;  // m
    return Tolerance(mujoco::Distance(pair.one, pair.other), {0, kClose}, 2 * kClose);
  }

  Pose DrawTarget(Rng& rng) {
    Pose pose{.x = rng.Uniform(-0.4, 0.4), .z = rng.Uniform(0.1, 0.4), .angle = 0};
    // a receptacle does not stand on its head
    const double most = receptacle_ == kNone ? kPi : kPi / 3;
    pose.angle = rng.Uniform(-most, most);
    if (receptacle_ != kNone) Place(receptacle_, pose);
    Place(target_, pose);
    return pose;
  }

  void Place(std::int32_t body, const Pose& pose) {
    body_pos_[3 * body] = pose.x;
    body_pos_[3 * body + 2] = pose.z;
    body_quat_[4 * body] = std::cos(pose.angle / 2);
    body_quat_[4 * body + 2] = std::sin(pose.angle / 2);
  }

  // Starts in the hand or in the target, each once in ten times, else flying.
  Pose DrawObject(Rng& rng, const Pose& target) {
    const double which = rng.Uniform();
    if (which < 0.1) {
      physics_.ForwardUnactuated();
      const double angle = kPi - std::atan2(grasp_rotation_[6], grasp_rotation_[0]);
      return {.x = grasp_[0], .z = grasp_[2], .angle = angle};
    }
    if (which < 0.2) return target;
    Pose pose{.x = rng.Uniform(-0.5, 0.5), .z = rng.Uniform(0, 0.7), .angle = 0};
    pose.angle = rng.Uniform(0, 2 * kPi);
    physics_.start().qvel[velocities_[0]] = rng.Uniform(-5, 5);
    return pose;
  }

  const bool peg_;
  const std::span<double> body_pos_;
  const std::span<double> body_quat_;
  const std::int32_t hand_;
  const std::int32_t target_;
  const std::int32_t receptacle_;
  const double* const grasp_;
  const double* const grasp_rotation_;
  std::int32_t object_;
  std::int32_t positions_[3];  // the object's x, z, angle
  std::int32_t velocities_[3];
  const double* touch_[kNumTouch];
  Pair pairs_[4];
};

inline constexpr double kManipulatorStep = 0.01;  // s
inline constexpr TaskEntry kManipulatorTasks[] = {
    {"ManipulatorBringBall-v1", kManipulatorStep, 12'000, Make<Manipulator, false, false>,
     MakeModel(R"({"use_peg": false, "insert": false})")},
    {"ManipulatorBringPeg-v1", kManipulatorStep, 12'000, Make<Manipulator, true, false>,
     MakeModel(R"({"use_peg": true, "insert": false})")},
    {"ManipulatorInsertBall-v1", kManipulatorStep, 12'000, Make<Manipulator, false, true>,
     MakeModel(R"({"use_peg": false, "insert": true})")},
    {"ManipulatorInsertPeg-v1", kManipulatorStep, 12'000, Make<Manipulator, true, true>,
     MakeModel(R"({"use_peg": true, "insert": true})")},
};

}  // namespace rollouts::dmc
