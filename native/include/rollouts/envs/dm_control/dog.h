// SPDX-License-Identifier: Apache-2.0
// dm_control's dog: it stands, walks, trots, runs, or fetches a ball.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts::dmc {

class Dog : public Task {
 public:
  // `speed` in m/s; 0: it is to stand.
  Dog(Physics& physics, int speed)
      : Task(physics),
        speed_(speed),
        root_(PositionOf("root")),
        torso_body_(Id(ModelObject::kBody, "torso")),
        torso_(BodyPosition("torso")),
        pelvis_(BodyPosition("pelvis")),
        upright_{BodyRotation("skull"), BodyRotation("torso"), BodyRotation("pelvis")},
        velocity_(Sensor("torso_linvel")) {
    for (std::int32_t joint = 0; joint < model_.njnt; ++joint) {
      if (model_.jnt_type[joint] == kHingeJoint) hinges_.push_back(joint);
    }
    for (const char* name : {"accelerometer", "velocimeter", "gyro"}) inertial_.push_back(Sensor(name));
    for (const char* name : {"foot_L", "foot_R", "hand_L", "hand_R"}) forces_.push_back(Sensor(name));
    for (const char* name : {"palm_L", "palm_R", "sole_L", "sole_R"}) touch_.push_back(Sensor(name));
  }

  void DrawStart(Rng& rng) override {
    // heights of the model's own pose count as standing, nearly
    standing_[kWeight] = -model_.gravity[2] * model_.body_subtreemass[torso_body_];
    standing_[kTorsoHeight] = torso_[2] * 0.9;
    standing_[kPelvisHeight] = pelvis_[2] * 0.9;
    const StartView start = physics_.start();
    const double azimuth = rng.Uniform(0, 2 * kPi);
    double* const rotation = start.qpos + root_ + 3;
    std::fill_n(rotation, 4, 0.0);
    rotation[0] = std::cos(azimuth / 2);
    rotation[3] = std::sin(azimuth / 2);
    for (const std::int32_t i : {0, 1, 5}) start.qvel[i] = 2 * mujoco::StandardNormal(rng);
    for (std::int32_t i = 0; i < model_.nu; ++i) {
      const double* const range = model_.actuator_ctrlrange + 2 * i;
      start.act[i] = rng.Uniform(range[0], range[1]);
    }
  }

  double Reward() const override {
    double reward = Standing(torso_[2], kTorsoHeight) * Standing(pelvis_[2], kPelvisHeight);
    static const double kUpright = std::cos(30 * (kPi / 180));  // 30 degrees
    for (const double* frame : upright_) {
      reward *= Tolerance(frame[8], {kUpright, kInf}, kUpright + 1, Sigmoid::kLinear, 0);
    }
    double touch = 0;
    for (const double* sensor : touch_) touch += *sensor;
    const double weight = standing_[kWeight];
    reward *= Tolerance(touch, {weight, kInf}, weight, Sigmoid::kLinear, 0.9);
    return speed_ == 0 ? reward : reward * Forward();
  }

  void Observe(Observation& obs) const override {
    obs.Begin("joint_angles");
    for (const std::int32_t joint : hinges_) obs.Put(data_.qpos[model_.jnt_qposadr[joint]]);
    obs.Begin("joint_velocites");  // dm_control's spelling
    for (const std::int32_t joint : hinges_) obs.Put(data_.qvel[model_.jnt_dofadr[joint]]);
    obs.Begin("torso_pelvis_height");
    obs.Put(torso_[2]);
    obs.Put(pelvis_[2]);
    obs.Begin("z_projection");
    for (const double* frame : upright_) obs.Put(frame + 6, 3);
    obs.Begin("torso_com_velocity");
    PutInFrame(velocity_, upright_[1], obs);
    PutSensors("inertial_sensors", inertial_, 3, obs);
    PutSensors("foot_forces", forces_, 3, obs);
    PutSensors("touch_sensors", touch_, 1, obs);
    obs.Vector("actuator_state", data_.act, model_.na);
  }

  std::span<double> Memory() override { return standing_; }

 private:
  // Numbers that an episode's start measures of the model.
  enum Measure : std::int32_t { kWeight, kTorsoHeight, kPelvisHeight, kNumMeasures };

  using Sensors = std::vector<const double*>;

  static void PutSensors(const char* name, const Sensors& sensors, std::int32_t size,
                         Observation& obs) {
    obs.Begin(name);
    for (const double* sensor : sensors) obs.Put(sensor, size);
  }

  double Standing(double height, Measure least) const {
    return Tolerance(height, {standing_[least], kInf}, standing_[least]);
  }

  double Forward() const {
    const double* const frame = upright_[1];
    const double speed =
        velocity_[0] * frame[0] + velocity_[1] * frame[3] + velocity_[2] * frame[6];
    const double forward = Tolerance(speed, {speed_, 2 * speed_}, std::max(1.0, speed_),
                                     Sigmoid::kLinear, 0);
    return (4 * forward + 1) / 5;
  }

  const double speed_;
  const std::int32_t root_;
  const std::int32_t torso_body_;
  const double* const torso_;
  const double* const pelvis_;
  const double* const upright_[3];  // rotations: skull, torso, pelvis
  const double* const velocity_;
  std::vector<std::int32_t> hinges_;
  Sensors inertial_;
  Sensors forces_;
  Sensors touch_;
  double standing_[kNumMeasures] = {};  // N, m, m
};

class DogFetch final : public Dog {
 public:
  explicit DogFetch(Physics& physics)
      : Dog(physics, 0),
        ball_position_(PositionOf("ball_root")),
        ball_velocity_(VelocityOf("ball_root")),
        head_site_(Id(ModelObject::kSite, "head")),
        ball_geom_(Id(ModelObject::kGeom, "ball")),
        head_(SitePosition("head")),
        head_rotation_(SiteRotation("head")),
        ball_(GeomPosition("ball")),
        target_(GeomPosition("target")),
        upper_bite_(SitePosition("upper_bite")),
        lower_bite_(SitePosition("lower_bite")),
        bite_site_(Id(ModelObject::kSite, "upper_bite")),
        target_geom_(Id(ModelObject::kGeom, "target")),
        floor_(Id(ModelObject::kGeom, "floor")) {}

  // The ball is thrown towards the middle.
  void DrawStart(Rng& rng) override {
    Dog::DrawStart(rng);
    const StartView start = physics_.start();
    const double radius = 0.75 * model_.geom_size[3 * floor_];
    const double azimuth = rng.Uniform(0, 2 * kPi);
    double* const position = start.qpos + ball_position_;
    position[0] = radius * std::sin(azimuth);
    position[1] = radius * std::cos(azimuth);
    position[2] = 0.05;
    const double height = rng.Uniform(0, 3);
    const double speed = rng.Uniform(0, 5);
    double* const velocity = start.qvel + ball_velocity_;
    velocity[0] = speed * (-std::sin(azimuth) + 0.05 * mujoco::StandardNormal(rng));
    velocity[1] = speed * (-std::cos(azimuth) + 0.05 * mujoco::StandardNormal(rng));
    velocity[2] = std::sqrt(2 * -model_.gravity[2] * height);
  }

  double Reward() const override {
    const double to_mouth =
        0.5 * (mujoco::Distance(ball_, upper_bite_) + mujoco::Distance(ball_, lower_bite_));
    const double to_target = mujoco::Distance(ball_, target_);
    const double bite_radius = model_.site_size[3 * bite_site_];
    const double target_radius = model_.geom_size[3 * target_geom_];
    const double arena = model_.geom_size[3 * floor_];
    double reach = Tolerance(to_mouth, {0, bite_radius}, 2, Sigmoid::kReciprocal);
    reach = (6 * reach + 1) / 7;
    const double fetch =
        (Tolerance(to_target, {0, target_radius}, arena, Sigmoid::kReciprocal) + 1) / 2;
    // it may let go of a ball that it has brought
    if (to_target < 2 * target_radius) reach = 1;
    return Dog::Reward() * reach * fetch;
  }

  void Observe(Observation& obs) const override {
    Dog::Observe(obs);
    double head_velocity[3];
    double ball_velocity[3];
    physics_.ObjectVelocity(ModelObject::kSite, head_site_, head_velocity);
    physics_.ObjectVelocity(ModelObject::kGeom, ball_geom_, ball_velocity);
    obs.Begin("ball_state");
    PutDifference(ball_, head_, obs);
    PutDifference(ball_velocity, head_velocity, obs);
    obs.Begin("target_position");
    PutDifference(target_, head_, obs);
  }

 private:
  // Writes a - b in the head's frame.
  void PutDifference(const double* a, const double* b, Observation& obs) const {
    const double difference[3] = {a[0] - b[0], a[1] - b[1], a[2] - b[2]};
    PutInFrame(difference, head_rotation_, obs);
  }

  const std::int32_t ball_position_;
  const std::int32_t ball_velocity_;
  const std::int32_t head_site_;
  const std::int32_t ball_geom_;
  const double* const head_;
  const double* const head_rotation_;
  const double* const ball_;
  const double* const target_;
  const double* const upper_bite_;
  const double* const lower_bite_;
  const std::int32_t bite_site_;
  const std::int32_t target_geom_;
  const std::int32_t floor_;
};

inline constexpr double kDogStep = 0.015;  // s
// The floor is as large as the dog can run in an episode.
inline constexpr TaskEntry kDogTasks[] = {
    {"DogStand-v1", kDogStep, 150'000, Make<Dog, 0>, ModelAndAssets(R"({"floor_size": 15})")},
    {"DogWalk-v1", kDogStep, 150'000, Make<Dog, 1>, ModelAndAssets(R"({"floor_size": 15})")},
    {"DogTrot-v1", kDogStep, 150'000, Make<Dog, 3>, ModelAndAssets(R"({"floor_size": 45})")},
    {"DogRun-v1", kDogStep, 150'000, Make<Dog, 9>, ModelAndAssets(R"({"floor_size": 135})")},
    {"DogFetch-v1", kDogStep, 150'000, Make<DogFetch>, ModelAndAssets(R"({"remove_ball": false})")},
};

}  // namespace rollouts::dmc
