// SPDX-License-Identifier: Apache-2.0
// dm_control's humanoid: it stands, walks or runs. That of the CMU's motion capture (humanoid_cmu.h)
// has other bodies and the same tasks.
#pragma once

#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts::dmc {

// Names of the parts in the two models.
struct HumanoidNames {
  const char* torso;
  std::int32_t up;  // the element of the torso's rotation that is 1 when it is upright
  const char* velocity;
  const char* limbs[4];
};

class HumanoidTask : public Task {
 public:
  // `speed` in m/s; 0: it is to stand.
  HumanoidTask(Physics& physics, const HumanoidNames& names, double speed, bool pure_state)
      : Task(physics),
        speed_(speed),
        pure_state_(pure_state),
        up_(names.up),
        head_(BodyPosition("head")),
        torso_(BodyPosition(names.torso)),
        torso_rotation_(BodyRotation(names.torso)),
        velocity_(Sensor(names.velocity)) {
    for (std::int32_t i = 0; i < 4; ++i) limbs_[i] = BodyPosition(names.limbs[i]);
  }

  DataArrays Reads() const override { return kXpos | kXmat | kSensordata; }
  void DrawStart(Rng& rng) override { RandomizeJointsApart(physics_, rng); }

  double Reward() const override {
    constexpr double kStandHeight = 1.4;  // m, of the head
    const double standing = Tolerance(head_[2], {kStandHeight, kInf}, kStandHeight / 4);
    const double upright =
        Tolerance(torso_rotation_[up_], {0.9, kInf}, 1.9, Sigmoid::kLinear, 0);
    const double small_control = (4 + SmallControl(data_.ctrl, model_.nu)) / 5;
    return small_control * (standing * upright) * Moving();
  }

  void Observe(Observation& obs) const override {
    if (pure_state_) {
      obs.Vector("position", data_.qpos, model_.nq);
    } else {
      obs.Vector("joint_angles", data_.qpos + 7, model_.nq - 7);
      obs.Scalar("head_height", head_[2]);
      PutExtremities(obs);
      obs.Vector("torso_vertical", torso_rotation_ + 6, 3);
      obs.Vector("com_velocity", velocity_, 3);
    }
    obs.Vector("velocity", data_.qvel, model_.nv);
  }

 private:
  double Moving() const {
    if (speed_ == 0) return (Tolerance(velocity_[0], {}, 2) + Tolerance(velocity_[1], {}, 2)) / 2;
    const double speed = mujoco::Norm(velocity_, 2);
    return (5 * Tolerance(speed, {speed_, kInf}, speed_, Sigmoid::kLinear, 0) + 1) / 6;
  }

  // Hands and feet in the torso's frame.
  void PutExtremities(Observation& obs) const {
    obs.Begin("extremities");
    for (const double* limb : limbs_) {
      const double offset[3] = {limb[0] - torso_[0], limb[1] - torso_[1], limb[2] - torso_[2]};
      PutInFrame(offset, torso_rotation_, obs);
    }
  }

  const double speed_;
  const bool pure_state_;
  const std::int32_t up_;
  const double* const head_;
  const double* const torso_;
  const double* const torso_rotation_;
  const double* const velocity_;  // the centre of mass's
  const double* limbs_[4];
};

class Humanoid final : public HumanoidTask {
 public:
  Humanoid(Physics& physics, int speed, bool pure_state)
      : HumanoidTask(physics,
                     {"torso",
                      8,
                      "torso_subtreelinvel",
                      {"left_hand", "left_foot", "right_hand", "right_foot"}},
                     speed, pure_state) {}
};

inline constexpr double kHumanoidStep = 0.025;  // s
inline constexpr TaskEntry kHumanoidTasks[] = {
    {"HumanoidStand-v1", kHumanoidStep, 30'000, Make<Humanoid, 0, false>},
    {"HumanoidWalk-v1", kHumanoidStep, 30'000, Make<Humanoid, 1, false>},
    {"HumanoidRun-v1", kHumanoidStep, 30'000, Make<Humanoid, 10, false>},
    {"HumanoidRunPureState-v1", kHumanoidStep, 30'000, Make<Humanoid, 10, true>},
};

}  // namespace rollouts::dmc
