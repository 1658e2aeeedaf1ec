// SPDX-License-Identifier: Apache-2.0
#include "rollouts/envs/box2d/bipedal_walker.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "walker_terrain.h"

namespace rollouts {
namespace {

using walker::kScale;

// names and values of bipedal_walker.py
constexpr double kFps = 50;
constexpr float kMotorsTorque = 80;
constexpr double kSpeedHip = 4;
constexpr double kSpeedKnee = 6;
constexpr double kLidarRange = 160 / kScale;
constexpr double kInitialRandom = 5;  // N
constexpr double kLegDown = -8 / kScale;
constexpr double kLegWidth = 8 / kScale;
constexpr double kLegHeight = 34 / kScale;
constexpr double kWidth = walker::kViewportWidth / kScale;
constexpr double kHeight = walker::kViewportHeight / kScale;
constexpr std::int32_t kVelocityIterations = 6 * 30;
constexpr std::int32_t kPositionIterations = 2 * 30;
constexpr std::uint16_t kGroundCategory = 0x0001;
constexpr std::int32_t kNumClouds = walker::kTerrainLength / 20;
constexpr std::int32_t kNumHinges = 4;
constexpr std::int32_t kStepCostNs = 35'000;  // one core of an EPYC 9005

// the hull collides only with the ground, as do the legs
constexpr PlanarMaterial kHull{.density = 5, .friction = 0.1F, .category = 0x0020, .mask = 0x001};
constexpr PlanarMaterial kLeg{.density = 1, .category = 0x0020, .mask = 0x001};

float Sign(float value) {
  if (value > 0) return 1;
  return value < 0 ? -1 : 0;
}

// The share of a motor's torque.
float Strength(float action) { return std::min(std::abs(action), 1.0F); }

// Corners x, y of five-cornered clouds; drawn before the hull's push, as in the reference.
std::vector<double> Clouds(TapeDraws& draws) {
  constexpr double kHeightOfClouds = kHeight * 3 / 4;
  constexpr double kStep = walker::kTerrainStep;
  std::vector<double> corners;
  for (std::int32_t i = 0; i < kNumClouds; ++i) {
    const double x = draws.Uniform(0, walker::kTerrainLength) * kStep;
    for (std::int32_t a = 0; a < 5; ++a) {
      const double turn = 3.14 * 2 * a / 5;
      corners.push_back(x + 15 * kStep * std::sin(turn) + draws.Uniform(0, 5 * kStep));
      corners.push_back(kHeightOfClouds + 5 * kStep * std::cos(turn) + draws.Uniform(0, 5 * kStep));
    }
  }
  return corners;
}

}  // namespace

EnvSpec WalkerTask::MakeSpec(const Config&) {
  EnvSpec spec;
  spec.observation = {.dtype = DType::kFloat32, .ndim = 1, .shape = {kNumObs}, .elementwise = true};
  constexpr double kHigh[] = {kPi, 5, 5, 5, kPi, 5, kPi, 5, 5, kPi, 5, kPi, 5, 5};
  for (std::int32_t i = 0; i < kNumObs; ++i) {
    const bool is_ray = i >= kNumObs - kNumRays;
    const bool is_touch = i == 8 || i == 13;
    spec.observation.high[i] = is_ray ? 1 : kHigh[i];
    spec.observation.low[i] = is_touch ? 0 : -spec.observation.high[i];
  }
  spec.action = {
      .dtype = DType::kFloat32, .ndim = 1, .shape = {kMaxActions}, .low = {-1}, .high = {1}};
  spec.step_cost_ns = kStepCostNs;
  spec.together = PlanarTurns();
  return spec;
}

std::int32_t WalkerTask::ReadAction(const Config&, const std::uint8_t* bytes, float* numbers) {
  std::memcpy(numbers, bytes, kMaxActions * sizeof(float));
  return kMaxActions;
}

WalkerTask::WalkerTask(const Config& config, TapeDraws& draws) : world_({0, -10}) {
  const walker::Terrain terrain(config.hardcore, draws);
  obstacles_ = terrain.AddTo(world_);
  ground_.assign(terrain.heights().begin(), terrain.heights().end());
  clouds_ = Clouds(draws);

  constexpr double kHullCorners[][2] = {{-30, 9}, {6, 9}, {34, 1}, {34, -8}, {-30, -8}};
  std::array<PlanarPoint, std::size(kHullCorners)> corners;
  for (std::size_t i = 0; i < corners.size(); ++i) {
    corners[i] = {kHullCorners[i][0] / kScale, kHullCorners[i][1] / kScale};
  }
  constexpr double kX = walker::kTerrainStep * walker::kTerrainStartpad / 2;
  constexpr double kY = walker::kTerrainHeight + 2 * kLegHeight;
  hull_ = world_.AddBody({kX, kY}, 0);
  world_.AddPolygon(hull_, corners, kHull);
  world_.ApplyForce(hull_, {draws.Uniform(-kInitialRandom, kInitialRandom), 0});
  AddLegs(kX, kY);

  constexpr float kNoAction[kMaxActions] = {};
  Step(kNoAction, draws);
}

void WalkerTask::AddLegs(double x, double y) {
  for (const int leg : {0, 1}) {
    const int i = leg == 0 ? -1 : 1;
    const std::int32_t upper = world_.AddBody({x, y - kLegHeight / 2 - kLegDown}, i * 0.05);
    world_.AddBox(upper, kLegWidth / 2, kLegHeight / 2, kLeg);
    world_.AddHinge({.body_a = hull_,
                     .body_b = upper,
                     .anchor_a = {0, kLegDown},
                     .anchor_b = {0, kLegHeight / 2},
                     .max_torque = kMotorsTorque,
                     .motor_speed = static_cast<float>(i),
                     .lower_angle = -0.8F,
                     .upper_angle = 1.1F});

    const std::int32_t lower = world_.AddBody({x, y - kLegHeight * 3 / 2 - kLegDown}, i * 0.05);
    world_.AddBox(lower, 0.8 * kLegWidth / 2, kLegHeight / 2, kLeg);
    world_.AddHinge({.body_a = upper,
                     .body_b = lower,
                     .anchor_a = {0, -kLegHeight / 2},
                     .anchor_b = {0, kLegHeight / 2},
                     .max_torque = kMotorsTorque,
                     .motor_speed = 1,
                     .lower_angle = -1.6F,
                     .upper_angle = -0.1F});
    upper_legs_[leg] = upper;
    lower_legs_[leg] = lower;
  }
}

StepResult WalkerTask::Step(const float* action, TapeDraws&) {
  for (std::int32_t i = 0; i < kMaxActions; ++i) {
    if (!std::isfinite(action[i])) {
      throw std::runtime_error("element " + std::to_string(i) + " of the action is not finite");
    }
  }
  for (std::int32_t i = 0; i < kNumHinges; ++i) {
    const double speed = i % 2 == 0 ? kSpeedHip : kSpeedKnee;
    world_.SetMotor(i, static_cast<float>(speed) * Sign(action[i]),
                    kMotorsTorque * Strength(action[i]));
  }
  world_.Step(static_cast<float>(1.0 / kFps), kVelocityIterations, kPositionIterations);

  const PlanarMotion hull = world_.Motion(hull_);
  Look(hull);
  return Judge(action, hull);
}

// Computes the state.
void WalkerTask::Look(const PlanarMotion& hull) {
  double* state = state_;
  *state++ = hull.angle;
  *state++ = 2.0 * hull.angular_velocity / kFps;
  *state++ = 0.3 * hull.velocity.x * kWidth / kFps;
  *state++ = 0.3 * hull.velocity.y * kHeight / kFps;
  for (const std::int32_t leg : {0, 1}) {
    const PlanarTurn hip = world_.Turn(2 * leg);
    const PlanarTurn knee = world_.Turn(2 * leg + 1);
    *state++ = hip.angle;
    *state++ = hip.speed / kSpeedHip;
    *state++ = knee.angle + 1.0;
    *state++ = knee.speed / kSpeedKnee;
    *state++ = world_.Touches(lower_legs_[leg]) ? 1 : 0;
  }
  for (std::int32_t i = 0; i < kNumRays; ++i) {
    const double angle = 1.5 * i / 10.0;
    *state++ = world_.FreeWay(hull.position,
                              {hull.position.x + std::sin(angle) * kLidarRange,
                               hull.position.y - std::cos(angle) * kLidarRange},
                              kGroundCategory);
  }
}

StepResult WalkerTask::Judge(const float* action, const PlanarMotion& hull) {
  // rewards moving forwards with the head straight
  double shaping = 130 * static_cast<double>(hull.position.x) / kScale;
  shaping -= 5.0 * std::abs(state_[0]);
  // float32 from here on, as NumPy computes with float32 actions
  auto reward = static_cast<float>(shaping_ ? shaping - *shaping_ : 0);
  shaping_ = shaping;
  constexpr auto kTorqueCost = static_cast<float>(0.00035 * 80);
  for (std::int32_t i = 0; i < kMaxActions; ++i) reward -= kTorqueCost * Strength(action[i]);

  bool terminated = false;
  if (world_.HasTouched(hull_) || hull.position.x < 0) {
    reward = -100;
    terminated = true;
  }
  constexpr double kEnd =
      (walker::kTerrainLength - walker::kTerrainGrass) * walker::kTerrainStep;
  if (hull.position.x > kEnd) terminated = true;
  return StepResult::Of(reward, terminated);
}

void WalkerTask::Observe(float* obs) const {
  for (std::int32_t i = 0; i < kNumObs; ++i) obs[i] = static_cast<float>(state_[i]);
}

void WalkerTask::AppendScene(std::vector<double>& out) const {
  out.push_back(world_.Motion(hull_).position.x);
  out.insert(out.end(), ground_.begin(), ground_.end());
  out.insert(out.end(), clouds_.begin(), clouds_.end());
  const std::int32_t walker[] = {hull_, upper_legs_[0], lower_legs_[0], upper_legs_[1],
                                 lower_legs_[1]};
  for (const std::int32_t body : walker) world_.AppendCorners(body, out);
  for (const std::int32_t body : obstacles_) world_.AppendCorners(body, out);
}

}  // namespace rollouts
