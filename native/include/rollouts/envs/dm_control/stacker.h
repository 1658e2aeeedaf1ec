// SPDX-License-Identifier: Apache-2.0
// dm_control's stacker: an arm puts a box at a height that a box has only on top of others.
#pragma once

#include "rollouts/envs/dm_control/planar_arm.h"
#include "rollouts/envs/dm_control/rewards.h"

namespace rollouts::dmc {

struct Stacker : PlanarArm {
  static constexpr bool kIsApart = true;
  static constexpr std::int32_t kMostBoxes = 4;
  struct Box {
    std::int32_t body;
    std::int32_t site;
    std::int32_t positions[3];  // x, y (an angle), z
    std::int32_t velocities[3];
  };
  std::int32_t num_boxes;
  std::int32_t hand;
  std::int32_t target;
  std::int32_t target_site;
  std::int32_t target_geom;
  std::int32_t grasp;
  Box boxes[kMostBoxes];

  Stacker(const auto& model, std::int32_t num_boxes)
      : PlanarArm(model),
        num_boxes(num_boxes),
        hand(model.Body("hand")),
        target(model.Body("target")),
        target_site(model.Site("target")),
        target_geom(model.Geom("target")),
        grasp(model.Site("grasp")),
        boxes{} {
    for (std::int32_t i = 0; i < num_boxes; ++i) {
      char name[] = "box0_x";
      name[3] = static_cast<char>('0' + i);
      for (std::int32_t axis = 0; axis < 3; ++axis) {
        name[5] = "xyz"[axis];
        boxes[i].positions[axis] = model.Position(name);
        boxes[i].velocities[axis] = model.Velocity(name);
      }
      name[4] = 0;
      boxes[i].body = model.Body(name);
      boxes[i].site = model.Site(name);
    }
  }

  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const {
    DrawArm(start, rng);
    const std::uint32_t height = 2 * rng.Below(static_cast<std::uint32_t>(num_boxes)) + 1;
    start.Put(DrawnField::kBodyPos, 3 * target + 2, BoxSize(start.model) * height);
    start.Put(DrawnField::kBodyPos, 3 * target, rng.Uniform(-0.37, 0.37));
    for (std::int32_t i = 0; i < num_boxes; ++i) {
      const auto& at = boxes[i].positions;
      start.qpos[at[0]] = rng.Uniform(0.1, 0.3);
      start.qpos[at[2]] = rng.Uniform(0, 0.7);
      start.qpos[at[1]] = rng.Uniform(0, 2 * kPi);  // an angle
    }
  }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    constexpr double kClose = 0.01;  // m
    double nearest = kInf;
    for (std::int32_t i = 0; i < num_boxes; ++i) {
      const double distance = BetweenSites(sim, boxes[i].site, target_site);
      nearest = distance < nearest ? distance : nearest;
    }
    return Tolerance(nearest, {}, 2 * BoxSize(sim.model)) *
           Tolerance(BetweenSites(sim, grasp, target_site), {0.1, kInf}, kClose);
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    PutArm(sim, obs);
    obs.Begin("touch");
    for (std::int32_t i = 0; i < sim.model.nsensordata; ++i) obs.Put(Log1p(sim.data.sensordata[i]));
    obs.Begin("hand_pos");
    PutPose(sim, hand, obs);
    obs.Begin("box_pos", kPoseSize);
    for (std::int32_t i = 0; i < num_boxes; ++i) PutPose(sim, boxes[i].body, obs);
    obs.Begin("box_vel");
    for (std::int32_t i = 0; i < num_boxes; ++i) {
      for (const std::int32_t velocity : boxes[i].velocities) obs.Put(sim.data.qvel[velocity]);
    }
    obs.Begin("target_pos");
    PutPlace(sim, target, obs);
  }

 private:
  // Half of a box's edge; the target is as large as the boxes.
  ROLLOUTS_HD double BoxSize(const auto& model) const { return model.geom_size[3 * target_geom]; }
};

inline constexpr double kStackerStep = 0.01;  // s
template <typename Entry>
inline constexpr Entry kStackerTasks[] = {
    {"StackerStack2-v1", kStackerStep, 15'000, Make<Entry, Stacker, 2>,
     MakeModel(R"({"n_boxes": 2})")},
    {"StackerStack4-v1", kStackerStep, 25'000, Make<Entry, Stacker, 4>,
     MakeModel(R"({"n_boxes": 4})")},
};

}  // namespace rollouts::dmc
