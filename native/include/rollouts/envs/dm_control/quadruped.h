// SPDX-License-Identifier: Apache-2.0
// dm_control's quadruped: four legs walk, run, climb out of a bowl or push a ball to a target.
#pragma once

#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

// The parts that its tasks have in common: observations, rewards, and a start that rises from the
// ground.
struct Quadruped : SuiteTask {
  static constexpr bool kIsApart = true;
  static constexpr bool kResetsTries = true;
  std::int32_t torso;
  std::int32_t velocity;
  std::int32_t root_velocity;
  std::int32_t root;
  std::int32_t imu;
  std::int32_t forces;

  explicit Quadruped(const auto& model)
      : torso(model.Body("torso")),
        velocity(model.Sensor("velocimeter")),
        root_velocity(model.Velocity("root")),
        root(model.Position("root")),
        imu(model.Sensor("imu_accel")),
        forces(model.Sensor("force_toe_front_left")) {}

  // Puts the body in the middle, in any rotation.
  ROLLOUTS_HD void Begin(auto& start, Rng& rng) const {
    double orientation[4];
    DrawRotation(rng, orientation);
    PutRoot(start, 0, 0, orientation);
  }

  // Raises the body by a centimetre, beginning at the ground.
  ROLLOUTS_HD void Draw(auto& start, Rng&) const {
    const double centimetres = Floor(start.qpos[root + 2] / kCentimetre + 1.5);
    start.qpos[root + 2] = kCentimetre * centimetres;
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    constexpr std::int32_t kImuNumbers = 6;    // from an accelerometer and a gyroscope
    constexpr std::int32_t kForceNumbers = 24;  // forces, then torques, at four toes
    const auto* const sensors = sim.data.sensordata;
    obs.Begin("egocentric_state");
    PutHinges(sim.data.qpos, sim.model.jnt_qposadr, sim.model, obs);
    PutHinges(sim.data.qvel, sim.model.jnt_dofadr, sim.model, obs);
    obs.Put(sim.data.act, sim.model.na);
    obs.Vector("torso_velocity", sensors + velocity, 3);
    obs.Scalar("torso_upright", sim.data.xmat[9 * torso + 8]);
    obs.Vector("imu", sensors + imu, kImuNumbers);
    obs.Begin("force_torque");
    for (std::int32_t i = 0; i < kForceNumbers; ++i) obs.Put(Asinh(sensors[forces + i]));
  }

 protected:
  static constexpr double kCentimetre = 0.01;  // m

  ROLLOUTS_HD void PutRoot(auto& start, double x, double y, const double* orientation) const {
    double* const qpos = start.qpos + root;
    qpos[0] = x;
    qpos[1] = y;
    // the first try is at 0
    qpos[2] = -kCentimetre;
    for (std::int32_t i = 0; i < 4; ++i) qpos[3 + i] = orientation[i];
  }

  ROLLOUTS_HD double Upright(const auto& sim, double deviation_degrees) const {
    const double deviation = LibraryCos(deviation_degrees * (kPi / 180));
    return Tolerance(sim.data.xmat[9 * torso + 8], {deviation, kInf}, 1 + deviation,
                     Sigmoid::kLinear, 0);
  }
};

struct QuadrupedMove : Quadruped {
  double speed;  // m/s

  QuadrupedMove(const auto& model, bool running) : Quadruped(model), speed(running ? 5 : 0.5) {}

  ROLLOUTS_HD double Reward(const auto& sim) const {
    return Upright(sim, 0) * Tolerance(sim.data.sensordata[velocity], {speed, kInf}, speed,
                                       Sigmoid::kLinear, 0.5);
  }
};

// Escaping from a bowl, which only the host draws.
struct QuadrupedEscape : Quadruped {
  std::int32_t workspace;
  std::int32_t ranges;

  explicit QuadrupedEscape(const auto& model)
      : Quadruped(model), workspace(model.Site("workspace")), ranges(model.Sensor("rf_00")) {}

  void DrawModel(auto& start, Rng& rng) const { start.DrawBowl(rng); }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    const double radius = sim.model.hfield_size[0];
    return Upright(sim, 20) * Tolerance(mujoco::Norm(sim.data.site_xpos + 3 * workspace, 3),
                                        {radius, kInf}, radius, Sigmoid::kLinear, 0);
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    constexpr std::int32_t kNumRanges = 20;
    Quadruped::Observe(sim, obs);
    const auto* const place = sim.data.xpos + 3 * torso;
    const double to_origin[3] = {-place[0], -place[1], -place[2]};
    obs.Begin("origin");
    PutInFrame(to_origin, sim.data.xmat + 9 * torso, obs);
    obs.Begin("rangefinder");
    // MuJoCo's number is -1 where nothing is hit
    for (std::int32_t i = 0; i < kNumRanges; ++i) {
      const double range = sim.data.sensordata[ranges + i];
      obs.Put(range == -1 ? 1 : Tanh(range));
    }
  }
};

struct QuadrupedFetch : Quadruped {
  std::int32_t floor;
  std::int32_t ball_geom;
  std::int32_t workspace;
  std::int32_t target;
  std::int32_t ball;
  std::int32_t ball_position;
  std::int32_t ball_velocity;

  explicit QuadrupedFetch(const auto& model)
      : Quadruped(model),
        floor(model.Geom("floor")),
        ball_geom(model.Geom("ball")),
        workspace(model.Site("workspace")),
        target(model.Site("target")),
        ball(model.Body("ball")),
        ball_position(model.Position("ball_root")),
        ball_velocity(model.Velocity("ball_root")) {}

  // Puts the body anywhere in a square, upright.
  ROLLOUTS_HD void Begin(auto& start, Rng& rng) const {
    const double azimuth = rng.Uniform(0, 2 * kPi);
    const double orientation[4] = {LibraryCos(azimuth / 2), 0, 0, LibrarySin(azimuth / 2)};
    const double radius = Radius(start.model);
    const double x = rng.Uniform(-radius, radius);
    const double y = rng.Uniform(-radius, radius);
    PutRoot(start, x, y, orientation);
  }

  // Drops the ball somewhere in the square.
  ROLLOUTS_HD void Finish(auto& start, Rng& rng) const {
    const double radius = Radius(start.model);
    for (std::int32_t i = 0; i < 2; ++i) {
      start.qpos[ball_position + i] = rng.Uniform(-radius, radius);
    }
    start.qpos[ball_position + 2] = 2;  // metres
    for (std::int32_t i = 0; i < 2; ++i) {
      start.qvel[ball_velocity + i] = 5 * mujoco::StandardNormal(rng);
    }
  }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    const auto& model = sim.model;
    const double arena = model.geom_size[3 * floor] * Sqrt(2.0);
    const double reach =
        static_cast<double>(model.site_size[3 * workspace]) + model.geom_size[3 * ball_geom];
    const double reached =
        Tolerance(ToBall(sim, workspace), {0, reach}, arena, Sigmoid::kLinear, 0);
    const double fetched =
        Tolerance(ToBall(sim, target), {0, model.site_size[3 * target]}, arena, Sigmoid::kLinear, 0);
    return Upright(sim, 0) * (reached * (0.5 + 0.5 * fetched));
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    const auto* const place = sim.data.xpos + 3 * torso;
    const auto* const qvel = sim.data.qvel;
    Quadruped::Observe(sim, obs);
    obs.Begin("ball_state");
    PutDifference(sim, sim.data.xpos + 3 * ball, place, obs);
    PutDifference(sim, qvel + ball_velocity, qvel + root_velocity, obs);
    const auto* const turning = qvel + ball_velocity + 3;
    const double turns[3] = {turning[0], turning[1], turning[2]};
    PutInFrame(turns, sim.data.xmat + 9 * torso, obs);
    obs.Begin("target_position");
    PutDifference(sim, sim.data.site_xpos + 3 * target, place, obs);
  }

 private:
  // Half of the square's side.
  ROLLOUTS_HD double Radius(const auto& model) const { return 0.9 * model.geom_size[3 * floor]; }
  template <typename Number>
  ROLLOUTS_HD void PutDifference(const auto& sim, const Number* to, const Number* from,
                                 Observation& obs) const {
    double way[3];
    Subtract(to, from, way);
    PutInFrame(way, sim.data.xmat + 9 * torso, obs);
  }
  // Horizontal distance of the ball from a site.
  ROLLOUTS_HD double ToBall(const auto& sim, std::int32_t site) const {
    double way[3];
    Subtract(sim.data.site_xpos + 3 * site, sim.data.xpos + 3 * ball, way);
    return mujoco::Norm(way, 2);
  }
};

template <typename Entry>
inline constexpr Entry kQuadrupedTasks[] = {
    {"QuadrupedEscape-v1", 0.02, 60'000, Make<Entry, QuadrupedEscape>,
     MakeModel(R"({"floor_size": 40, "terrain": true, "rangefinders": true})")},
    {"QuadrupedFetch-v1", 0.02, 35'000, Make<Entry, QuadrupedFetch>,
     MakeModel(R"({"walls_and_ball": true})")},
    {"QuadrupedRun-v1", 0.02, 30'000, Make<Entry, QuadrupedMove, true>,
     MakeModel(R"({"floor_size": 100})")},
    {"QuadrupedWalk-v1", 0.02, 30'000, Make<Entry, QuadrupedMove, false>,
     MakeModel(R"({"floor_size": 10})")},
};

}  // namespace rollouts::dmc
