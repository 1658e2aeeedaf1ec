// SPDX-License-Identifier: Apache-2.0
// dm_control's fish: it keeps upright, or swims to a target.
#pragma once

#include <cmath>

#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts::dmc {

class Fish final : public Task {
 public:
  Fish(Physics& physics, bool swimming)
      : Task(physics),
        swimming_(swimming),
        target_(Id(ModelObject::kGeom, "target")),
        mouth_(Id(ModelObject::kGeom, "mouth")),
        torso_(BodyRotation("torso")),
        root_(PositionOf("root")) {
    for (std::int32_t i = 0; i < kNumJoints; ++i) positions_[i] = PositionOf(kJoints[i]);
  }

  void DrawModel(Rng& rng) override {
    if (!swimming_) {
      physics_.Own<float>("geom_rgba")[4 * target_ + 3] = 0;  // not to be seen
      return;
    }
    double* const position = &physics_.Own("geom_pos")[3 * target_];
    for (std::int32_t i = 0; i < 2; ++i) position[i] = rng.Uniform(-0.4, 0.4);  // metres
    position[2] = rng.Uniform(0.1, 0.3);
  }

  void DrawStart(Rng& rng) override {
    double* const qpos = physics_.start().qpos;
    DrawRotation(rng, qpos + root_ + 3);
    for (const std::int32_t joint : positions_) qpos[joint] = rng.Uniform(-0.2, 0.2);
  }

  double Reward() const override {
    const double upright = torso_[8];
    if (!swimming_) return Tolerance(upright, {1, 1}, 1);
    double to_target[3];
    ToTarget(to_target);
    const double radii = model_.geom_size[3 * mouth_] + model_.geom_size[3 * target_];
    const double in_target = Tolerance(mujoco::Norm(to_target, 3), {0, radii}, 2 * radii);
    return (7 * in_target + 0.5 * (upright + 1)) / 8;
  }

  void Observe(Observation& obs) const override {
    obs.Begin("joint_angles");
    for (const std::int32_t joint : positions_) obs.Put(data_.qpos[joint]);
    obs.Scalar("upright", torso_[8]);
    if (swimming_) {
      double to_target[3];
      ToTarget(to_target);
      obs.Vector("target", to_target, 3);
    }
    obs.Vector("velocity", data_.qvel, model_.nv);
  }

 private:
  static constexpr std::int32_t kNumJoints = 7;
  static constexpr const char* kJoints[kNumJoints] = {
      "tail1",          "tail_twist",   "tail2",        "finright_roll",
      "finright_pitch", "finleft_roll", "finleft_pitch"};

  // The way from the mouth, in its frame.
  void ToTarget(double* seen) const {
    const double* frame = data_.geom_xmat + 9 * mouth_;
    double vector[3];
    for (std::int32_t i = 0; i < 3; ++i) {
      vector[i] = data_.geom_xpos[3 * target_ + i] - data_.geom_xpos[3 * mouth_ + i];
    }
    for (std::int32_t i = 0; i < 3; ++i) {
      seen[i] = vector[0] * frame[i] + vector[1] * frame[3 + i] + vector[2] * frame[6 + i];
    }
  }

  const bool swimming_;
  const std::int32_t target_;
  const std::int32_t mouth_;
  const double* const torso_;
  const std::int32_t root_;
  std::int32_t positions_[kNumJoints];
};

inline constexpr TaskEntry kFishTasks[] = {
    {"FishSwim-v1", 0.04, 9'000, Make<Fish, true>},
    {"FishUpright-v1", 0.04, 9'000, Make<Fish, false>},
};

}  // namespace rollouts::dmc
