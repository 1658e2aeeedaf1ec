// SPDX-License-Identifier: Apache-2.0
// dm_control's swimmer: a chain of links in a viscous plane moves its nose to a target.
#pragma once

#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

struct Swimmer : SuiteTask {
  static constexpr DataArrays kReads = kGeomXpos | kXmat | kSensordata;
  static constexpr const char* kDraws = "geom_pos";
  std::int32_t target;
  std::int32_t light;
  std::int32_t nose;
  std::int32_t head;
  std::int32_t velocities;

  explicit Swimmer(const auto& model)
      : target(model.Geom("target")),
        light(model.Light("target_light")),
        nose(model.Geom("nose")),
        head(model.Body("head")),
        velocities(model.Sensor("head_vel")) {}

  ROLLOUTS_HD void DrawModel(auto& start, Rng& rng) const {
    const double box = rng.Uniform() < 0.2 ? 0.3 : 2;  // metres
    for (std::int32_t i = 0; i < 2; ++i) {
      const double place = rng.Uniform(-box, box);
      start.Put(DrawnField::kGeomPos, 3 * target + i, place);
      start.Put(DrawnField::kLightPos, 3 * light + i, place);
    }
  }
  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const { RandomizeJoints(start, rng); }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    const double size = sim.model.geom_size[3 * target];
    // lengths in the plane, in the head's frame
    double seen[2];
    ToTarget(sim, seen);
    return Tolerance(mujoco::Norm(seen, 2), {0, size}, 5 * size, Sigmoid::kLongTail);
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    double seen[2];
    ToTarget(sim, seen);
    obs.Vector("joints", sim.data.qpos + 3, sim.model.nq - 3);
    obs.Vector("to_target", seen, 2);
    // each link has the numbers of a velocimeter, then of a gyroscope; only those in the plane are
    // observed
    obs.Begin("body_velocities");
    for (std::int32_t link = velocities; link < sim.model.nsensordata; link += 6) {
      obs.Put(sim.data.sensordata + link, 2);
      obs.Put(sim.data.sensordata[link + 5]);
    }
  }

 private:
  ROLLOUTS_HD void ToTarget(const auto& sim, double* seen) const {
    double way[3];
    Subtract(sim.data.geom_xpos + 3 * target, sim.data.geom_xpos + 3 * nose, way);
    for (std::int32_t i = 0; i < 2; ++i) seen[i] = Seen(way, sim.data.xmat + 9 * head, i);
  }
};

template <typename Entry>
inline constexpr Entry kSwimmerTasks[] = {
    {"SwimmerSwimmer6-v1", 0.03, 6'000, Make<Entry, Swimmer>, ModelAndAssets(R"({"n_joints": 6})")},
    {"SwimmerSwimmer15-v1", 0.03, 15'000, Make<Entry, Swimmer>,
     ModelAndAssets(R"({"n_joints": 15})")},
};

}  // namespace rollouts::dmc
