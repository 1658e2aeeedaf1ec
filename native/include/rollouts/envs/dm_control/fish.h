// SPDX-License-Identifier: Apache-2.0
// dm_control's fish: it keeps upright, or swims to a target.
#pragma once

#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

struct Fish : SuiteTask {
  static constexpr const char* kDraws = "geom_pos";
  static constexpr std::int32_t kNumJoints = 7;
  bool swimming;
  std::int32_t target;
  std::int32_t mouth;
  std::int32_t torso;
  std::int32_t root;
  std::int32_t positions[kNumJoints];

  Fish(const auto& model, bool swimming)
      : swimming(swimming),
        target(model.Geom("target")),
        mouth(model.Geom("mouth")),
        torso(model.Body("torso")),
        root(model.Position("root")) {
    const char* const joints[kNumJoints] = {
        "tail1",          "tail_twist",   "tail2",        "finright_roll",
        "finright_pitch", "finleft_roll", "finleft_pitch"};
    for (std::int32_t i = 0; i < kNumJoints; ++i) positions[i] = model.Position(joints[i]);
  }

  void ChangeModel(auto& model) const {
    if (!swimming) model.Set("geom_rgba", 4 * target + 3, 0);  // hides the target
  }

  ROLLOUTS_HD void DrawModel(auto& start, Rng& rng) const {
    if (!swimming) return;
    for (std::int32_t i = 0; i < 3; ++i) {
      const double place = i < 2 ? rng.Uniform(-0.4, 0.4) : rng.Uniform(0.1, 0.3);  // metres
      start.Put(DrawnField::kGeomPos, 3 * target + i, place);
    }
  }

  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const {
    DrawRotation(rng, start.qpos + root + 3);
    for (const std::int32_t joint : positions) start.qpos[joint] = rng.Uniform(-0.2, 0.2);
  }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    const double upright = sim.data.xmat[9 * torso + 8];
    if (!swimming) return Tolerance(upright, {1, 1}, 1);
    double to_target[3];
    ToTarget(sim, to_target);
    const double radii = static_cast<double>(sim.model.geom_size[3 * mouth]) +
                         sim.model.geom_size[3 * target];
    const double in_target = Tolerance(mujoco::Norm(to_target, 3), {0, radii}, 2 * radii);
    return (7 * in_target + 0.5 * (upright + 1)) / 8;
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    obs.Begin("joint_angles");
    for (const std::int32_t joint : positions) obs.Put(sim.data.qpos[joint]);
    obs.Scalar("upright", sim.data.xmat[9 * torso + 8]);
    if (swimming) {
      double to_target[3];
      ToTarget(sim, to_target);
      obs.Vector("target", to_target, 3);
    }
    obs.Vector("velocity", sim.data.qvel, sim.model.nv);
  }

 private:
  // The vector from the mouth to the target, in the mouth's frame.
  ROLLOUTS_HD void ToTarget(const auto& sim, double* seen) const {
    double way[3];
    Subtract(sim.data.geom_xpos + 3 * target, sim.data.geom_xpos + 3 * mouth, way);
    for (std::int32_t i = 0; i < 3; ++i) seen[i] = Seen(way, sim.data.geom_xmat + 9 * mouth, i);
  }
};

template <typename Entry>
inline constexpr Entry kFishTasks[] = {
    {"FishSwim-v1", 0.04, 9'000, Make<Entry, Fish, true>},
    {"FishUpright-v1", 0.04, 9'000, Make<Entry, Fish, false>},
};

}  // namespace rollouts::dmc
