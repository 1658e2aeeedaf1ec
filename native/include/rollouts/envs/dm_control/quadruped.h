// SPDX-License-Identifier: Apache-2.0
// dm_control's quadruped: four legs walk, run, climb out of a bowl or push a ball to a target.
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/dm_control/terrain.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts::dmc {

// The common part of its tasks: observations and rewards.
class Quadruped : public Task {
 public:
  explicit Quadruped(Physics& physics)
      : Task(physics),
        torso_position_(BodyPosition("torso")),
        torso_(BodyRotation("torso")),
        velocity_(Sensor("velocimeter")),
        root_velocity_(VelocityOf("root")),
        root_(PositionOf("root")),
        imu_(Sensor("imu_accel")),
        forces_(Sensor("force_toe_front_left")) {
    for (std::int32_t joint = 0; joint < model_.njnt; ++joint) {
      if (model_.jnt_type[joint] == kHingeJoint) hinges_.push_back(joint);
    }
  }

  void Observe(Observation& obs) const override {
    constexpr std::int32_t kImuNumbers = 6;    // an accelerometer's and a gyroscope's
    constexpr std::int32_t kForceNumbers = 24;  // forces, then torques, at four toes
    obs.Begin("egocentric_state");
    for (const std::int32_t joint : hinges_) obs.Put(data_.qpos[model_.jnt_qposadr[joint]]);
    for (const std::int32_t joint : hinges_) obs.Put(data_.qvel[model_.jnt_dofadr[joint]]);
    obs.Put(data_.act, model_.na);
    obs.Vector("torso_velocity", velocity_, 3);
    obs.Scalar("torso_upright", torso_[8]);
    obs.Vector("imu", imu_, kImuNumbers);
    obs.Begin("force_torque");
    for (std::int32_t i = 0; i < kForceNumbers; ++i) obs.Put(std::asinh(forces_[i]));
  }

 protected:
  // Lets the body rise from the ground until it touches nothing.
  void FindHeight(const double* orientation, double x, double y) {
    for (std::int32_t centimetres = 0; centimetres <= 10'000; ++centimetres) {
      if (TryHeight(orientation, x, y, 0.01 * centimetres)) return;
    }
    throw std::runtime_error("no height was found at which it touches nothing");
  }

  double Upright(double deviation_degrees) const {
    const double deviation = std::cos(deviation_degrees * (kPi / 180));
    return Tolerance(torso_[8], {deviation, kInf}, 1 + deviation, Sigmoid::kLinear, 0);
  }

  const double* const torso_position_;
  const double* const torso_;
  const double* const velocity_;
  const std::int32_t root_velocity_;

 private:
  bool TryHeight(const double* orientation, double x, double y, double z) {
    physics_.ResetData();
    double* const qpos = physics_.start().qpos + root_;
    qpos[0] = x;
    qpos[1] = y;
    qpos[2] = z;
    for (std::int32_t i = 0; i < 4; ++i) qpos[3 + i] = orientation[i];
    // deep in the ground there may be more contacts than memory for them
    return physics_.TryForwardUnactuated() && physics_.num_contacts() == 0;
  }

  const std::int32_t root_;
  const double* const imu_;
  const double* const forces_;
  std::vector<std::int32_t> hinges_;
};

class QuadrupedMove final : public Quadruped {
 public:
  QuadrupedMove(Physics& physics, bool running)
      : Quadruped(physics), speed_(running ? 5 : 0.5) {}

  void DrawStart(Rng& rng) override {
    double orientation[4];
    DrawRotation(rng, orientation);
    FindHeight(orientation, 0, 0);
  }

  double Reward() const override {
    return Upright(0) * Tolerance(velocity_[0], {speed_, kInf}, speed_, Sigmoid::kLinear, 0.5);
  }

 private:
  const double speed_;  // m/s
};

class QuadrupedEscape final : public Quadruped {
 public:
  explicit QuadrupedEscape(Physics& physics)
      : Quadruped(physics),
        workspace_(SitePosition("workspace")),
        ranges_(Sensor("rf_00")) {
    physics.HeightField();  // throws where there is none
  }

  void DrawModel(Rng& rng) override {
    const Physics::HeightFieldView field = physics_.HeightField();
    DrawTerrain(rng, field.num_rows, 2 * field.radius,
                physics_.Own<float>("hfield_data").subspan(field.first));
  }

  void DrawStart(Rng& rng) override {
    double orientation[4];
    DrawRotation(rng, orientation);
    FindHeight(orientation, 0, 0);
  }

  double Reward() const override {
    const double radius = physics_.HeightField().radius;
    return Upright(20) *
           Tolerance(mujoco::Norm(workspace_, 3), {radius, kInf}, radius, Sigmoid::kLinear, 0);
  }

  void Observe(Observation& obs) const override {
    constexpr std::int32_t kNumRanges = 20;
    Quadruped::Observe(obs);
    const double to_origin[3] = {-torso_position_[0], -torso_position_[1], -torso_position_[2]};
    obs.Begin("origin");
    PutInFrame(to_origin, torso_, obs);
    obs.Begin("rangefinder");
    // MuJoCo's -1 where nothing is hit
    for (std::int32_t i = 0; i < kNumRanges; ++i) {
      obs.Put(ranges_[i] == -1 ? 1 : std::tanh(ranges_[i]));
    }
  }

 private:
  const double* const workspace_;
  const double* const ranges_;
};

class QuadrupedFetch final : public Quadruped {
 public:
  explicit QuadrupedFetch(Physics& physics)
      : Quadruped(physics),
        floor_(Id(ModelObject::kGeom, "floor")),
        ball_geom_(Id(ModelObject::kGeom, "ball")),
        workspace_site_(Id(ModelObject::kSite, "workspace")),
        target_site_(Id(ModelObject::kSite, "target")),
        ball_(BodyPosition("ball")),
        ball_start_(PositionOf("ball_root")),
        ball_velocity_(VelocityOf("ball_root")) {}

  void DrawStart(Rng& rng) override {
    const double azimuth = rng.Uniform(0, 2 * kPi);
    const double orientation[4] = {std::cos(azimuth / 2), 0, 0, std::sin(azimuth / 2)};
    const double radius = 0.9 * model_.geom_size[3 * floor_];
    const double x = rng.Uniform(-radius, radius);
    const double y = rng.Uniform(-radius, radius);
    FindHeight(orientation, x, y);
    const StartView start = physics_.start();
    for (std::int32_t i = 0; i < 2; ++i) {
      start.qpos[ball_start_ + i] = rng.Uniform(-radius, radius);
    }
    start.qpos[ball_start_ + 2] = 2;  // metres
    for (std::int32_t i = 0; i < 2; ++i) {
      start.qvel[ball_velocity_ + i] = 5 * mujoco::StandardNormal(rng);
    }
  }

  double Reward() const override {
    const double arena = model_.geom_size[3 * floor_] * std::sqrt(2.0);
    const double reach =
        model_.site_size[3 * workspace_site_] + model_.geom_size[3 * ball_geom_];
    const double reached =
        Tolerance(ToBall(workspace_site_), {0, reach}, arena, Sigmoid::kLinear, 0);
    const double fetched =
        Tolerance(ToBall(target_site_), {0, model_.site_size[3 * target_site_]}, arena,
                  Sigmoid::kLinear, 0);
    return Upright(0) * (reached * (0.5 + 0.5 * fetched));
  }

  void Observe(Observation& obs) const override {
    Quadruped::Observe(obs);
    double vector[3];
    obs.Begin("ball_state");
    Subtract(ball_, torso_position_, vector);
    PutInFrame(vector, torso_, obs);
    Subtract(data_.qvel + ball_velocity_, data_.qvel + root_velocity_, vector);
    PutInFrame(vector, torso_, obs);
    PutInFrame(data_.qvel + ball_velocity_ + 3, torso_, obs);
    obs.Begin("target_position");
    Subtract(data_.site_xpos + 3 * target_site_, torso_position_, vector);
    PutInFrame(vector, torso_, obs);
  }

 private:
  static void Subtract(const double* a, const double* b, double* difference) {
    for (std::int32_t i = 0; i < 3; ++i) difference[i] = a[i] - b[i];
  }
  // Horizontal distance from a site.
  double ToBall(std::int32_t site) const {
    double vector[3];
    Subtract(data_.site_xpos + 3 * site, ball_, vector);
    return mujoco::Norm(vector, 2);
  }

  const std::int32_t floor_;
  const std::int32_t ball_geom_;
  const std::int32_t workspace_site_;
  const std::int32_t target_site_;
  const double* const ball_;
  const std::int32_t ball_start_;
  const std::int32_t ball_velocity_;
};

inline constexpr TaskEntry kQuadrupedTasks[] = {
    {"QuadrupedEscape-v1", 0.02, 60'000, Make<QuadrupedEscape>,
     MakeModel(R"({"floor_size": 40, "terrain": true, "rangefinders": true})")},
    {"QuadrupedFetch-v1", 0.02, 35'000, Make<QuadrupedFetch>,
     MakeModel(R"({"walls_and_ball": true})")},
    {"QuadrupedRun-v1", 0.02, 30'000, Make<QuadrupedMove, true>,
     MakeModel(R"({"floor_size": 100})")},
    {"QuadrupedWalk-v1", 0.02, 30'000, Make<QuadrupedMove, false>,
     MakeModel(R"({"floor_size": 10})")},
};

}  // namespace rollouts::dmc
