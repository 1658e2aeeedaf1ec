// SPDX-License-Identifier: Apache-2.0
// The parts that dm_control's manipulator and stacker have in common: an arm with a hand, in a
// plane.
#pragma once

#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

struct PlanarArm : SuiteTask {
  static constexpr std::int32_t kPoseSize = 4;
  static constexpr std::int32_t kNumJoints = 8;
  std::int32_t joints[kNumJoints];
  std::int32_t thumb;
  std::int32_t finger;

  explicit PlanarArm(const auto& model)
      : joints{model.Joint("arm_root"),  model.Joint("arm_shoulder"), model.Joint("arm_elbow"),
               model.Joint("arm_wrist"), model.Joint("finger"),       model.Joint("fingertip"),
               model.Joint("thumb"),     model.Joint("thumbtip")},
        thumb(model.Position("thumb")),
        finger(model.Position("finger")) {}

 protected:
  // Draws any angles that the joints allow; the hand is symmetric.
  ROLLOUTS_HD void DrawArm(auto& start, Rng& rng) const {
    const auto& model = start.model;
    for (const std::int32_t joint : joints) {
      const bool limited = start.JointLimited(joint);
      const double low = limited ? model.jnt_range[2 * joint] : -kPi;
      const double high = limited ? model.jnt_range[2 * joint + 1] : kPi;
      start.qpos[model.jnt_qposadr[joint]] = rng.Uniform(low, high);
    }
    start.qpos[finger] = start.qpos[thumb];
  }

  ROLLOUTS_HD void PutArm(const auto& sim, Observation& obs) const {
    obs.Begin("arm_pos", 2);
    for (const std::int32_t joint : joints) {
      const double angle = sim.data.qpos[sim.model.jnt_qposadr[joint]];
      obs.Put(LibrarySin(angle));
      obs.Put(LibraryCos(angle));
    }
    obs.Begin("arm_vel");
    for (const std::int32_t joint : joints) obs.Put(sim.data.qvel[sim.model.jnt_dofadr[joint]]);
  }

  // Puts x, z and the orientation of a body, as cosine and sine of half the angle.
  ROLLOUTS_HD static void PutPose(const auto& sim, std::int32_t body, Observation& obs) {
    PutPlace(sim, body, obs);
    obs.Put(sim.data.xquat[4 * body]);
    obs.Put(sim.data.xquat[4 * body + 2]);
  }
  ROLLOUTS_HD static void PutPlace(const auto& sim, std::int32_t body, Observation& obs) {
    obs.Put(sim.data.xpos[3 * body]);
    obs.Put(sim.data.xpos[3 * body + 2]);
  }
  ROLLOUTS_HD static double BetweenSites(const auto& sim, std::int32_t one, std::int32_t other) {
    return mujoco::Distance(sim.data.site_xpos + 3 * one, sim.data.site_xpos + 3 * other);
  }
};

}  // namespace rollouts::dmc
