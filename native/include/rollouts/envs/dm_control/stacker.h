// SPDX-License-Identifier: Apache-2.0
// dm_control's stacker: an arm puts a box at a height that takes stacking.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "rollouts/envs/dm_control/planar_arm.h"
#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"

namespace rollouts::dmc {

class Stacker final : public PlanarArm {
 public:
  Stacker(Physics& physics, int num_boxes)
      : PlanarArm(physics),
        body_pos_(physics.Own("body_pos")),
        hand_(Id(ModelObject::kBody, "hand")),
        target_(Id(ModelObject::kBody, "target")),
        target_site_(SitePosition("target")),
        grasp_(SitePosition("grasp")),
        target_geom_(Id(ModelObject::kGeom, "target")) {
    for (int i = 0; i < num_boxes; ++i) {
      const std::string name = "box" + std::to_string(i);
      Box box{Id(ModelObject::kBody, name), SitePosition(name), {}, {}};
      for (std::int32_t axis = 0; axis < 3; ++axis) {
        const std::string joint = name + "_" + "xyz"[axis];
        box.positions[axis] = PositionOf(joint);
        box.velocities[axis] = VelocityOf(joint);
      }
      boxes_.push_back(box);
    }
  }

  void DrawStart(Rng& rng) override {
    DrawApart(physics_, [&] {
      DrawArm(rng);
      const auto height = 2 * rng.Below(static_cast<std::uint32_t>(boxes_.size())) + 1;
      body_pos_[3 * target_ + 2] = BoxSize() * height;
      body_pos_[3 * target_] = rng.Uniform(-0.37, 0.37);
      double* const qpos = physics_.start().qpos;
      for (const Box& box : boxes_) {
        qpos[box.positions[0]] = rng.Uniform(0.1, 0.3);
        qpos[box.positions[2]] = rng.Uniform(0, 0.7);
        qpos[box.positions[1]] = rng.Uniform(0, 2 * kPi);  // an angle
      }
    });
  }

  double Reward() const override {
    constexpr double kClose = 0.01;  // m
    double nearest = kInf;
    for (const Box& box : boxes_) {
      nearest = std::min(nearest, mujoco::Distance(box.site, target_site_));
    }
    return Tolerance(nearest, {}, 2 * BoxSize()) *
           Tolerance(mujoco::Distance(grasp_, target_site_), {0.1, kInf}, kClose);
  }

  void Observe(Observation& obs) const override {
    PutArm(obs);
    obs.Begin("touch");
    for (std::int32_t i = 0; i < model_.nsensordata; ++i) obs.Put(std::log1p(data_.sensordata[i]));
    obs.Begin("hand_pos");
    PutPose(hand_, obs);
    obs.Begin("box_pos", kPoseSize);
    for (const Box& box : boxes_) PutPose(box.body, obs);
    obs.Begin("box_vel");
    for (const Box& box : boxes_) {
      for (const std::int32_t velocity : box.velocities) obs.Put(data_.qvel[velocity]);
    }
    obs.Begin("target_pos");
    PutPlace(target_, obs);
  }

 private:
  struct Box {
    std::int32_t body;
    const double* site;
    std::int32_t positions[3];  // x, y (an angle), z
    std::int32_t velocities[3];
  };

  // Half of an edge; the target is as large as the boxes.
  double BoxSize() const { return model_.geom_size[3 * target_geom_]; }

  const std::span<double> body_pos_;
  const std::int32_t hand_;
  const std::int32_t target_;
  const double* const target_site_;
  const double* const grasp_;
  const std::int32_t target_geom_;
  std::vector<Box> boxes_;
};

inline constexpr double kStackerStep = 0.01;  // s
inline constexpr TaskEntry kStackerTasks[] = {
    {"StackerStack2-v1", kStackerStep, 15'000, Make<Stacker, 2>, MakeModel(R"({"n_boxes": 2})")},
    {"StackerStack4-v1", kStackerStep, 25'000, Make<Stacker, 4>, MakeModel(R"({"n_boxes": 4})")},
};

}  // namespace rollouts::dmc
