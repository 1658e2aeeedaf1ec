// SPDX-License-Identifier: Apache-2.0
// dm_control's dog: it stands, walks, trots, runs, or fetches a ball.
#pragma once

#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

struct Dog : SuiteTask {
  // Numbers that are measured in the model's own pose.
  enum Measure : std::int32_t { kWeight, kTorsoHeight, kPelvisHeight, kNumMeasures };
  static constexpr std::int32_t kMeasures = kNumMeasures;
  double measures[kNumMeasures] = {};  // N, m, m
  double speed;                        // m/s; 0: the task is to stand
  std::int32_t root;
  std::int32_t torso;
  std::int32_t pelvis;
  std::int32_t upright[3];  // skull, torso, pelvis
  std::int32_t velocity;
  std::int32_t inertial[3];
  std::int32_t forces[4];
  std::int32_t touch[4];

  Dog(const auto& model, double speed)
      : speed(speed),
        root(model.Position("root")),
        torso(model.Body("torso")),
        pelvis(model.Body("pelvis")),
        upright{model.Body("skull"), torso, pelvis},
        velocity(model.Sensor("torso_linvel")),
        inertial{model.Sensor("accelerometer"), model.Sensor("velocimeter"), model.Sensor("gyro")},
        forces{model.Sensor("foot_L"), model.Sensor("foot_R"), model.Sensor("hand_L"),
               model.Sensor("hand_R")},
        touch{model.Sensor("palm_L"), model.Sensor("palm_R"), model.Sensor("sole_L"),
              model.Sensor("sole_R")} {}

  // Measures the weight and the heights that count as standing: 0.9 times those of the model's own
  // pose.
  void MeasurePose(const auto& sim) {
    measures[kWeight] = -sim.model.gravity[2] * sim.model.body_subtreemass[torso];
    measures[kTorsoHeight] = sim.data.xpos[3 * torso + 2] * 0.9;
    measures[kPelvisHeight] = sim.data.xpos[3 * pelvis + 2] * 0.9;
  }

  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const {
    const double azimuth = rng.Uniform(0, 2 * kPi);
    double* const rotation = start.qpos + root + 3;
    for (std::int32_t i = 0; i < 4; ++i) rotation[i] = 0;
    rotation[0] = LibraryCos(azimuth / 2);
    rotation[3] = LibrarySin(azimuth / 2);
    // along x and y, and around z
    start.qvel[0] = 2 * mujoco::StandardNormal(rng);
    start.qvel[1] = 2 * mujoco::StandardNormal(rng);
    start.qvel[5] = 2 * mujoco::StandardNormal(rng);
    for (std::int32_t i = 0; i < start.model.nu; ++i) {
      const auto* const range = start.model.actuator_ctrlrange + 2 * i;
      start.act[i] = rng.Uniform(range[0], range[1]);
    }
  }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    const auto* const xmat = sim.data.xmat;
    double reward = Standing(sim.data.xpos[3 * torso + 2], kTorsoHeight) *
                    Standing(sim.data.xpos[3 * pelvis + 2], kPelvisHeight);
    const double least = LibraryCos(30 * (kPi / 180));  // 30 degrees
    for (const std::int32_t body : upright) {
      reward *= Tolerance(xmat[9 * body + 8], {least, kInf}, least + 1, Sigmoid::kLinear, 0);
    }
    double touched = 0;
    for (const std::int32_t at : touch) touched += sim.data.sensordata[at];
    const double weight = measures[kWeight];
    reward *= Tolerance(touched, {weight, kInf}, weight, Sigmoid::kLinear, 0.9);
    return speed == 0 ? reward : reward * Forward(sim);
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    const auto* const xmat = sim.data.xmat;
    obs.Begin("joint_angles");
    PutHinges(sim.data.qpos, sim.model.jnt_qposadr, sim.model, obs);
    obs.Begin("joint_velocites");  // dm_control's spelling
    PutHinges(sim.data.qvel, sim.model.jnt_dofadr, sim.model, obs);
    obs.Begin("torso_pelvis_height");
    obs.Put(sim.data.xpos[3 * torso + 2]);
    obs.Put(sim.data.xpos[3 * pelvis + 2]);
    obs.Begin("z_projection");
    for (const std::int32_t body : upright) obs.Put(xmat + 9 * body + 6, 3);
    obs.Begin("torso_com_velocity");
    for (std::int32_t i = 0; i < 3; ++i) obs.Put(Velocity(sim, i));
    PutSensors("inertial_sensors", sim, inertial, 3, obs);
    PutSensors("foot_forces", sim, forces, 3, obs);
    PutSensors("touch_sensors", sim, touch, 1, obs);
    obs.Vector("actuator_state", sim.data.act, sim.model.na);
  }

 private:
  template <std::int32_t kCount>
  ROLLOUTS_HD static void PutSensors(const char* name, const auto& sim,
                                     const std::int32_t (&sensors)[kCount], std::int32_t size,
                                     Observation& obs) {
    obs.Begin(name);
    for (const std::int32_t at : sensors) obs.Put(sim.data.sensordata + at, size);
  }

  ROLLOUTS_HD double Standing(double height, Measure least) const {
    return Tolerance(height, {measures[least], kInf}, measures[least]);
  }

  // The velocity of the centre of mass, in the torso's frame.
  ROLLOUTS_HD double Velocity(const auto& sim, std::int32_t axis) const {
    const auto* const moves = sim.data.sensordata + velocity;
    const double moving[3] = {moves[0], moves[1], moves[2]};
    return Seen(moving, sim.data.xmat + 9 * torso, axis);
  }

  ROLLOUTS_HD double Forward(const auto& sim) const {
    const double margin = speed < 1 ? 1 : speed;
    const double forward =
        Tolerance(Velocity(sim, 0), {speed, 2 * speed}, margin, Sigmoid::kLinear, 0);
    return (4 * forward + 1) / 5;
  }
};

struct DogFetch : Dog {
  std::int32_t ball_position;
  std::int32_t ball_velocity;
  std::int32_t ball_body;
  std::int32_t ball;
  std::int32_t target;
  std::int32_t floor;
  std::int32_t head;
  std::int32_t bites[2];

  explicit DogFetch(const auto& model)
      : Dog(model, 0),
        ball_position(model.Position("ball_root")),
        ball_velocity(model.Velocity("ball_root")),
        ball_body(model.Body("ball")),
        ball(model.Geom("ball")),
        target(model.Geom("target")),
        floor(model.Geom("floor")),
        head(model.Site("head")),
        bites{model.Site("upper_bite"), model.Site("lower_bite")} {}

  // Draws a start, in which the ball is thrown towards the middle.
  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const {
    Dog::Draw(start, rng);
    const double radius = 0.75 * start.model.geom_size[3 * floor];
    const double azimuth = rng.Uniform(0, 2 * kPi);
    double* const position = start.qpos + ball_position;
    position[0] = radius * LibrarySin(azimuth);
    position[1] = radius * LibraryCos(azimuth);
    position[2] = 0.05;
    const double height = rng.Uniform(0, 3);
    const double speed = rng.Uniform(0, 5);
    double* const velocity = start.qvel + ball_velocity;
    velocity[0] = speed * (-LibrarySin(azimuth) + 0.05 * mujoco::StandardNormal(rng));
    velocity[1] = speed * (-LibraryCos(azimuth) + 0.05 * mujoco::StandardNormal(rng));
    velocity[2] = Sqrt(2 * -start.model.gravity[2] * height);
  }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    const auto* const sites = sim.data.site_xpos;
    const auto* const place = sim.data.geom_xpos + 3 * ball;
    const double to_mouth = 0.5 * (mujoco::Distance(place, sites + 3 * bites[0]) +
                                   mujoco::Distance(place, sites + 3 * bites[1]));
    const double to_target = mujoco::Distance(place, sim.data.geom_xpos + 3 * target);
    const double bite_radius = sim.model.site_size[3 * bites[0]];
    const double target_radius = sim.model.geom_size[3 * target];
    const double arena = sim.model.geom_size[3 * floor];
    double reach = Tolerance(to_mouth, {0, bite_radius}, 2, Sigmoid::kReciprocal);
    reach = (6 * reach + 1) / 7;
    const double fetch =
        (Tolerance(to_target, {0, target_radius}, arena, Sigmoid::kReciprocal) + 1) / 2;
    // the dog may let go of a ball that it has brought
    if (to_target < 2 * target_radius) reach = 1;
    return Dog::Reward(sim) * reach * fetch;
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    const auto* const place = sim.data.geom_xpos + 3 * ball;
    const auto* const seen_from = sim.data.site_xpos + 3 * head;
    Dog::Observe(sim, obs);
    double head_velocity[3];
    double moving[3];
    // the head moves with the skull, whose root is the torso
    PointVelocity(sim.data, upright[0], torso, seen_from, head_velocity);
    PointVelocity(sim.data, ball_body, ball_body, place, moving);
    obs.Begin("ball_state");
    PutDifference(sim, place, seen_from, obs);
    PutDifference(sim, moving, head_velocity, obs);
    obs.Begin("target_position");
    PutDifference(sim, sim.data.geom_xpos + 3 * target, seen_from, obs);
  }

 private:
  // Writes a - b in the head's frame.
  template <typename Number>
  ROLLOUTS_HD void PutDifference(const auto& sim, const Number* a, const Number* b,
                                 Observation& obs) const {
    double difference[3];
    Subtract(a, b, difference);
    PutInFrame(difference, sim.data.site_xmat + 9 * head, obs);
  }
};

inline constexpr double kDogStep = 0.015;  // s
// Tasks; the floor is as large as the distance that the dog can run in an episode.
template <typename Entry>
inline constexpr Entry kDogTasks[] = {
    {"DogStand-v1", kDogStep, 150'000, Make<Entry, Dog, 0>, ModelAndAssets(R"({"floor_size": 15})")},
    {"DogWalk-v1", kDogStep, 150'000, Make<Entry, Dog, 1>, ModelAndAssets(R"({"floor_size": 15})")},
    {"DogTrot-v1", kDogStep, 150'000, Make<Entry, Dog, 3>, ModelAndAssets(R"({"floor_size": 45})")},
    {"DogRun-v1", kDogStep, 150'000, Make<Entry, Dog, 9>, ModelAndAssets(R"({"floor_size": 135})")},
    {"DogFetch-v1", kDogStep, 150'000, Make<Entry, DogFetch>,
     ModelAndAssets(R"({"remove_ball": false})")},
};

}  // namespace rollouts::dmc
