// SPDX-License-Identifier: Apache-2.0
// dm_control's manipulator: an arm brings a ball or a peg to a target, or inserts it there.
#pragma once

#include "rollouts/envs/dm_control/planar_arm.h"
#include "rollouts/envs/dm_control/rewards.h"

namespace rollouts::dmc {

struct Manipulator : PlanarArm {
  static constexpr const char* kDraws = "body_pos, body_quat";
  static constexpr bool kIsApart = true;
  static constexpr bool kPlaces = true;
  static constexpr std::int32_t kNone = -1;
  static constexpr std::int32_t kNumTouch = 5;
  // Two sites that the task brings together.
  struct Pair {
    std::int32_t one;
    std::int32_t other;
  };
  bool peg;
  std::int32_t hand;
  std::int32_t object;
  std::int32_t target;
  std::int32_t receptacle;
  std::int32_t grasp;
  std::int32_t positions[3];  // the object's x, z, angle
  std::int32_t velocities[3];
  std::int32_t touch[kNumTouch];
  Pair pairs[4];

  Manipulator(const auto& model, bool peg, bool insert)
      : PlanarArm(model),
        peg(peg),
        hand(model.Body("hand")),
        object(model.Body(peg ? "peg" : "ball")),
        target(model.Body(peg ? "target_peg" : "target_ball")),
        receptacle(insert ? model.Body(peg ? "slot" : "cup") : kNone),
        grasp(model.Site("grasp")),
        touch{model.Sensor("palm_touch"), model.Sensor("finger_touch"), model.Sensor("thumb_touch"),
              model.Sensor("fingertip_touch"), model.Sensor("thumbtip_touch")},
        pairs{} {
    const char* const of_peg[] = {"peg_x", "peg_z", "peg_y"};
    const char* const of_ball[] = {"ball_x", "ball_z", "ball_y"};
    for (std::int32_t i = 0; i < 3; ++i) {
      positions[i] = model.Position(peg ? of_peg[i] : of_ball[i]);
      velocities[i] = model.Velocity(peg ? of_peg[i] : of_ball[i]);
    }
    if (peg) {
      pairs[0] = {model.Site("peg_grasp"), grasp};
      pairs[1] = {model.Site("peg_pinch"), model.Site("pinch")};
      pairs[2] = {model.Site("peg"), model.Site("target_peg")};
      pairs[3] = {model.Site("target_peg_tip"), model.Site("peg_tip")};
    } else {
      pairs[0] = {model.Site("ball"), model.Site("target_ball")};
    }
  }

  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const {
    DrawArm(start, rng);
    const Pose goal = DrawTarget(start, rng);
    // the object starts in the hand or in the target with probability 0.1 each, else in the air
    const double which = rng.Uniform();
    start.is_placed = which < 0.1;
    if (start.is_placed) return;
    if (which < 0.2) return PutObject(start, goal);
    Pose pose{.x = rng.Uniform(-0.5, 0.5), .z = rng.Uniform(0, 0.7), .angle = 0};
    pose.angle = rng.Uniform(0, 2 * kPi);
    start.qvel[velocities[0]] = rng.Uniform(-5, 5);
    PutObject(start, pose);
  }

  // Puts the object into the hand.
  ROLLOUTS_HD void Place(auto& start, const auto& data) const {
    const auto* const place = data.site_xpos + 3 * grasp;
    const auto* const rotation = data.site_xmat + 9 * grasp;
    const double angle = kPi - Atan2(rotation[6], rotation[0]);
    PutObject(start, {.x = place[0], .z = place[2], .angle = angle});
  }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    if (!peg) return IsClose(sim, pairs[0]);
    const double grasping = (IsClose(sim, pairs[0]) + IsClose(sim, pairs[1])) / 2;
    const double bringing = (IsClose(sim, pairs[2]) + IsClose(sim, pairs[3])) / 2;
    return bringing < grasping / 3 ? grasping / 3 : bringing;
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    PutArm(sim, obs);
    obs.Begin("touch");
    for (const std::int32_t at : touch) obs.Put(Log1p(sim.data.sensordata[at]));
    obs.Begin("hand_pos");
    PutPose(sim, hand, obs);
    obs.Begin("object_pos");
    PutPose(sim, object, obs);
    obs.Begin("object_vel");
    for (const std::int32_t velocity : velocities) obs.Put(sim.data.qvel[velocity]);
    obs.Begin("target_pos");
    PutPose(sim, target, obs);
  }

 private:
  // A place and an angle in the plane; metres and radians.
  struct Pose {
    double x;
    double z;
    double angle;
  };

  ROLLOUTS_HD static double IsClose(const auto& sim, const Pair& pair) {
    constexpr double kClose = 0.01;  // m
    return Tolerance(BetweenSites(sim, pair.one, pair.other), {0, kClose}, 2 * kClose);
  }

  ROLLOUTS_HD void PutObject(auto& start, const Pose& pose) const {
    start.qpos[positions[0]] = pose.x;
    start.qpos[positions[1]] = pose.z;
    start.qpos[positions[2]] = pose.angle;
  }

  ROLLOUTS_HD Pose DrawTarget(auto& start, Rng& rng) const {
    Pose pose{.x = rng.Uniform(-0.4, 0.4), .z = rng.Uniform(0.1, 0.4), .angle = 0};
    // a receptacle is never upside down
    const double most = receptacle == kNone ? kPi : kPi / 3;
    pose.angle = rng.Uniform(-most, most);
    if (receptacle != kNone) PutBody(start, receptacle, pose);
    PutBody(start, target, pose);
    return pose;
  }

  ROLLOUTS_HD static void PutBody(auto& start, std::int32_t body, const Pose& pose) {
    start.Put(DrawnField::kBodyPos, 3 * body, pose.x);
    start.Put(DrawnField::kBodyPos, 3 * body + 2, pose.z);
    start.Put(DrawnField::kBodyQuat, 4 * body, LibraryCos(pose.angle / 2));
    start.Put(DrawnField::kBodyQuat, 4 * body + 2, LibrarySin(pose.angle / 2));
  }
};

inline constexpr double kManipulatorStep = 0.01;  // s
template <typename Entry>
inline constexpr Entry kManipulatorTasks[] = {
    {"ManipulatorBringBall-v1", kManipulatorStep, 12'000, Make<Entry, Manipulator, false, false>,
     MakeModel(R"({"use_peg": false, "insert": false})")},
    {"ManipulatorBringPeg-v1", kManipulatorStep, 12'000, Make<Entry, Manipulator, true, false>,
     MakeModel(R"({"use_peg": true, "insert": false})")},
    {"ManipulatorInsertBall-v1", kManipulatorStep, 12'000, Make<Entry, Manipulator, false, true>,
     MakeModel(R"({"use_peg": false, "insert": true})")},
    {"ManipulatorInsertPeg-v1", kManipulatorStep, 12'000, Make<Entry, Manipulator, true, true>,
     MakeModel(R"({"use_peg": true, "insert": true})")},
};

}  // namespace rollouts::dmc
