// SPDX-License-Identifier: Apache-2.0
// The common part of dm_control's manipulator and stacker: an arm with a hand, in a plane.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts::dmc {

class PlanarArm : public Task {
 public:
  explicit PlanarArm(Physics& physics)
      : Task(physics), thumb_(PositionOf("thumb")), finger_(PositionOf("finger")) {
    for (const char* joint : {"arm_root", "arm_shoulder", "arm_elbow", "arm_wrist", "finger",
                              "fingertip", "thumb", "thumbtip"}) {
      joints_.push_back(Id(ModelObject::kJoint, joint));
    }
  }

 protected:
  static constexpr std::int32_t kPoseSize = 4;

  // Any angles that the joints allow; the hand is symmetric.
  void DrawArm(Rng& rng) {
    double* const qpos = physics_.start().qpos;
    for (const std::int32_t joint : joints_) {
      const bool limited = physics_.JointLimited(joint);
      const double low = limited ? model_.jnt_range[2 * joint] : -kPi;
      const double high = limited ? model_.jnt_range[2 * joint + 1] : kPi;
      qpos[model_.jnt_qposadr[joint]] = rng.Uniform(low, high);
    }
    qpos[finger_] = qpos[thumb_];
  }

  void PutArm(Observation& obs) const {
    obs.Begin("arm_pos", 2);
    for (const std::int32_t joint : joints_) {
      const double angle = data_.qpos[model_.jnt_qposadr[joint]];
      obs.Put(std::sin(angle));
      obs.Put(std::cos(angle));
    }
    obs.Begin("arm_vel");
    for (const std::int32_t joint : joints_) obs.Put(data_.qvel[model_.jnt_dofadr[joint]]);
  }

  // x, z and, as cosine and sine of half the angle, the orientation of a body.
  void PutPose(std::int32_t body, Observation& obs) const {
    PutPlace(body, obs);
    obs.Put(data_.xquat[4 * body]);
    obs.Put(data_.xquat[4 * body + 2]);
  }
  void PutPlace(std::int32_t body, Observation& obs) const {
    obs.Put(data_.xpos[3 * body]);
    obs.Put(data_.xpos[3 * body + 2]);
  }

 private:
  std::vector<std::int32_t> joints_;
  const std::int32_t thumb_;
  const std::int32_t finger_;
};

}  // namespace rollouts::dmc
