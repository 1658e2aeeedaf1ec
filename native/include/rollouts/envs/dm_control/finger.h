// SPDX-License-Identifier: Apache-2.0
// dm_control's finger: it spins a free body, or turns it so that its tip is in a target.
#pragma once

#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

// The parts that both tasks have in common. Observations come from sensors.
struct Finger : SuiteTask {
  static constexpr bool kIsApart = true;
  std::int32_t hinge;
  std::int32_t tip_site;
  std::int32_t target_site;
  std::int32_t target;  // this and the next are sensors
  std::int32_t tip;
  std::int32_t spinner;
  std::int32_t angles[2];
  std::int32_t velocities[3];  // that of the hinge comes last
  std::int32_t touch[2];

  explicit Finger(const auto& model)
      : hinge(model.Velocity("hinge")),
        tip_site(model.Site("tip")),
        target_site(model.Site("target")),
        target(model.Sensor("target")),
        tip(model.Sensor("tip")),
        spinner(model.Sensor("spinner")),
        angles{model.Sensor("proximal"), model.Sensor("distal")},
        velocities{model.Sensor("proximal_velocity"), model.Sensor("distal_velocity"),
                   model.Sensor("hinge_velocity")},
        touch{model.Sensor("touchtop"), model.Sensor("touchbottom")} {}

  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const { RandomizeJoints(start, rng); }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    const auto* const sensors = sim.data.sensordata;
    obs.Begin("position");
    for (const std::int32_t at : angles) obs.Put(sensors[at]);
    for (std::int32_t axis = 0; axis < 3; axis += 2) obs.Put(FromSpinner(sensors, tip, axis));
    obs.Begin("velocity");
    for (const std::int32_t at : velocities) obs.Put(sensors[at]);
    obs.Begin("touch");
    for (const std::int32_t at : touch) obs.Put(Log1p(sensors[at]));
  }

 protected:
  template <typename Number>
  ROLLOUTS_HD double FromSpinner(const Number* sensors, std::int32_t of, std::int32_t axis) const {
    return static_cast<double>(sensors[of + axis]) - sensors[spinner + axis];
  }
};

struct FingerSpin : Finger {
  explicit FingerSpin(const auto& model) : Finger(model) {}

  void ChangeModel(auto& model) const {
    model.Set("dof_damping", hinge, 0.03);
    // neither site is visible
    model.Set("site_rgba", 4 * target_site + 3, 0);
    model.Set("site_rgba", 4 * tip_site + 3, 0);
  }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    constexpr double kSpinVelocity = 15;  // rad/s
    return sim.data.sensordata[velocities[2]] <= -kSpinVelocity;
  }
};

struct FingerTurn : Finger {
  static constexpr const char* kDraws = "site_pos";
  double target_radius;  // metres
  std::int32_t cap;
  std::int32_t body;

  FingerTurn(const auto& model, bool hard)
      : Finger(model),
        target_radius(hard ? 0.03 : 0.07),
        cap(model.Geom("cap1")),
        body(model.Body("spinner")) {}

  void ChangeModel(auto& model) const { model.Set("site_size", 3 * target_site, target_radius); }

  // Draws the target: a place that the tip reaches when the body turns by a random angle.
  ROLLOUTS_HD void Begin(auto& start, Rng& rng) const {
    const double angle = rng.Uniform(-kPi, kPi);
    const auto* const size = start.model.geom_size + 3 * cap;
    const double radius = static_cast<double>(size[0]) + size[1] + size[2];
    const double x = start.BodyPlace(body, 0) + radius * LibrarySin(angle);
    const double z = start.BodyPlace(body, 2) + radius * LibraryCos(angle);
    start.Put(DrawnField::kSitePos, 3 * target_site, x);
    start.Put(DrawnField::kSitePos, 3 * target_site + 2, z);
  }

  ROLLOUTS_HD double Reward(const auto& sim) const { return DistanceToTarget(sim) <= 0; }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    Finger::Observe(sim, obs);
    obs.Begin("target_position");
    for (std::int32_t axis = 0; axis < 3; axis += 2) {
      obs.Put(FromSpinner(sim.data.sensordata, target, axis));
    }
    obs.Scalar("dist_to_target", DistanceToTarget(sim));
  }

 private:
  // The tip's distance from the target's surface; negative inside.
  ROLLOUTS_HD double DistanceToTarget(const auto& sim) const {
    const auto* const sensors = sim.data.sensordata;
    double way[2];
    for (std::int32_t i = 0; i < 2; ++i) {
      way[i] = FromSpinner(sensors, target, 2 * i) - FromSpinner(sensors, tip, 2 * i);
    }
    return mujoco::Norm(way, 2) - sim.model.site_size[3 * target_site];
  }
};

template <typename Entry>
inline constexpr Entry kFingerTasks[] = {
    {"FingerSpin-v1", 0.02, 5'000, Make<Entry, FingerSpin>},
    {"FingerTurnEasy-v1", 0.02, 5'000, Make<Entry, FingerTurn, false>},
    {"FingerTurnHard-v1", 0.02, 5'000, Make<Entry, FingerTurn, true>},
};

}  // namespace rollouts::dmc
