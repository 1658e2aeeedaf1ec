// SPDX-License-Identifier: Apache-2.0
#include "rollouts/envs/box2d/lunar_lander.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace rollouts {
namespace {

// names and values of lunar_lander.py
constexpr double kFps = 50;
constexpr double kScale = 30.0;  // pixels in a metre
constexpr double kMainEnginePower = 13.0;
constexpr double kSideEnginePower = 0.6;
constexpr double kInitialRandom = 1000.0;  // N
constexpr double kLegAway = 20;
constexpr double kLegDown = 18;
constexpr double kLegWidth = 2;
constexpr double kLegHeight = 8;
constexpr float kLegSpringTorque = 40;
constexpr double kSideEngineHeight = 14;
constexpr double kSideEngineAway = 12;
constexpr double kMainEngineY = 4;
constexpr double kViewportWidth = 600;
constexpr double kViewportHeight = 400;
constexpr double kWidth = kViewportWidth / kScale;
constexpr double kHeight = kViewportHeight / kScale;
constexpr double kHelipadY = kHeight / 4;
constexpr std::int32_t kVelocityIterations = 6 * 30;
constexpr std::int32_t kPositionIterations = 2 * 30;
constexpr std::int32_t kStepCostNs = 9'000;  // one core of an EPYC 9005

constexpr PlanarMaterial kGround{.friction = 0.1F};
// the hull collides only with the ground, as do the legs
constexpr PlanarMaterial kHull{.density = 5, .friction = 0.1F, .category = 0x0010, .mask = 0x001};
constexpr PlanarMaterial kLeg{.density = 1, .category = 0x0020, .mask = 0x001};

// the meanings of a discrete action
constexpr float kFireLeft = 1;
constexpr float kFireMain = 2;
constexpr float kFireRight = 3;

// The strength of the wind, which is never periodic; `index` is the number of the step plus a drawn
// number.
double Gust(std::int32_t index, double power) {
  return std::tanh(std::sin(0.02 * index) + std::sin(kPi * 0.01 * index)) * power;
}

}  // namespace

EnvSpec LanderTask::MakeSpec(const Config& config) {
  EnvSpec spec;
  spec.observation = {.dtype = DType::kFloat32,
                      .ndim = 1,
                      .shape = {kNumObs},
                      .elementwise = true,
                      .low = {-2.5, -2.5, -10, -10, -2 * kPi, -10, 0, 0},
                      .high = {2.5, 2.5, 10, 10, 2 * kPi, 10, 1, 1}};
  if (config.continuous) {
    spec.action = {
        .dtype = DType::kFloat32, .ndim = 1, .shape = {2}, .low = {-1}, .high = {1}};
  } else {
    spec.action = {.dtype = DType::kInt64, .n = 4};
  }
  spec.step_cost_ns = kStepCostNs;
  spec.together = PlanarTurns();
  return spec;
}

std::int32_t LanderTask::ReadAction(const Config& config, const std::uint8_t* bytes,
                                    float* numbers) {
  if (config.continuous) {
    std::memcpy(numbers, bytes, 2 * sizeof(float));
    return 2;
  }
  std::int32_t index;
  std::memcpy(&index, bytes, sizeof(index));
  numbers[0] = static_cast<float>(index);
  return 1;
}

LanderTask::LanderTask(const Config& config, TapeDraws& draws)
    : config_(config), world_({0, config.gravity}) {
  AddGround(draws);

  constexpr double kHullCorners[][2] = {{-14, 17}, {-17, 0}, {-17, -10},
                                        {17, -10}, {17, 0},  {14, 17}};
  std::array<PlanarPoint, std::size(kHullCorners)> corners;
  for (std::size_t i = 0; i < corners.size(); ++i) {
    corners[i] = {kHullCorners[i][0] / kScale, kHullCorners[i][1] / kScale};
  }
  lander_ = world_.AddBody({kWidth / 2, kHeight}, 0);
  world_.AddPolygon(lander_, corners, kHull);
  const double force_x = draws.Uniform(-kInitialRandom, kInitialRandom);
  const double force_y = draws.Uniform(-kInitialRandom, kInitialRandom);
  world_.ApplyForce(lander_, {force_x, force_y});
  if (config_.enable_wind) {
    wind_index_ = draws.Integer(-9999, 9999);
    torque_index_ = draws.Integer(-9999, 9999);
  }
  AddLegs();

  constexpr float kNoAction[kMaxActions] = {};
  Step(kNoAction, draws);
}

void LanderTask::AddGround(TapeDraws& draws) {
  double height[kChunks + 1];
  for (double& one : height) one = draws.Uniform(0, kHeight / 2);
  // flat around the middle, where the pad is
  for (std::int32_t i = kChunks / 2 - 2; i <= kChunks / 2 + 2; ++i) height[i] = kHelipadY;
  for (std::int32_t i = 0; i < kChunks; ++i) {
    const double before = height[i > 0 ? i - 1 : kChunks];
    ground_[i] = 0.33 * (before + height[i] + height[i + 1]);
  }

  const std::int32_t moon = world_.AddStaticBody();
  world_.AddEdge(moon, {0, 0}, {kWidth, 0}, PlanarMaterial{});
  constexpr double kChunkWidth = kWidth / (kChunks - 1);
  for (std::int32_t i = 0; i < kChunks - 1; ++i) {
    world_.AddEdge(moon, {kChunkWidth * i, ground_[i]}, {kChunkWidth * (i + 1), ground_[i + 1]},
                   kGround);
  }
}

void LanderTask::AddLegs() {
  for (const int side : {0, 1}) {
    const int i = side == 0 ? -1 : 1;
    legs_[side] = world_.AddBody({kWidth / 2 - i * kLegAway / kScale, kHeight}, i * 0.05);
    world_.AddBox(legs_[side], kLegWidth / kScale, kLegHeight / kScale, kLeg);
    world_.AddHinge({.body_a = lander_,
                     .body_b = legs_[side],
                     .anchor_a = {0, 0},
                     .anchor_b = {i * kLegAway / kScale, kLegDown / kScale},
                     .max_torque = kLegSpringTorque,
                     .motor_speed = static_cast<float>(0.3 * i),
                     .lower_angle = static_cast<float>(i == -1 ? 0.9 - 0.5 : -0.9),
                     .upper_angle = static_cast<float>(i == -1 ? 0.9 : -0.9 + 0.5)});
  }
}

StepResult LanderTask::Step(const float* action, TapeDraws& draws) {
  if (config_.enable_wind) Blow();

  // tip: the direction of the lander's nose
  const double angle = world_.Motion(lander_).angle;
  const Direction tip{std::sin(angle), std::cos(angle)};
  double dispersion[2];
  for (double& one : dispersion) one = draws.Uniform(-1, 1) / kScale;
  const double main_power = FireMain(action, tip, dispersion);
  const double side_power = FireSide(action, tip, dispersion);
  world_.Step(static_cast<float>(1.0 / kFps), kVelocityIterations, kPositionIterations);
  return Judge(main_power, side_power);
}

// Applies the wind, except on the ground.
void LanderTask::Blow() {
  if (world_.Touches(legs_[0]) || world_.Touches(legs_[1])) return;
  world_.ApplyForce(lander_, {Gust(wind_index_++, config_.wind_power), 0});
  world_.ApplyTorque(lander_, Gust(torque_index_++, config_.turbulence_power));
}

double LanderTask::FireMain(const float* action, Direction tip, const double* dispersion) {
  double power = 1;
  if (config_.continuous) {
    const double throttle = action[0];
    if (!(throttle > 0)) return 0;
    power = (std::min(throttle, 1.0) + 1.0) * 0.5;
  } else if (action[0] != kFireMain) {
    return 0;
  }

  const Direction side{-tip.y, tip.x};
  const double away = kMainEngineY / kScale + 2 * dispersion[0];
  const double x = tip.x * away + side.x * dispersion[1];
  const double y = -tip.y * away - side.y * dispersion[1];
  const PlanarPoint position = world_.Motion(lander_).position;
  world_.ApplyImpulse(lander_, {-x * kMainEnginePower * power, -y * kMainEnginePower * power},
                      {position.x + x, position.y + y});
  return power;
}

double LanderTask::FireSide(const float* action, Direction tip, const double* dispersion) {
  double power = 1;
  double direction = 0;
  if (config_.continuous) {
    const double throttle = std::abs(static_cast<double>(action[1]));
    if (!(throttle > 0.5)) return 0;
    power = std::min(throttle, 1.0);
    direction = action[1] > 0 ? 1 : -1;
  } else if (action[0] == kFireLeft || action[0] == kFireRight) {
    direction = static_cast<double>(action[0]) - 2;
  } else {
    return 0;
  }

  const Direction side{-tip.y, tip.x};
  const double away = 3 * dispersion[1] + direction * kSideEngineAway / kScale;
  const double x = tip.x * dispersion[0] + side.x * away;
  const double y = -tip.y * dispersion[0] - side.y * away;
  const PlanarPoint position = world_.Motion(lander_).position;
  // 17, as in the reference, which has 14 for the other axis
  world_.ApplyImpulse(lander_, {-x * kSideEnginePower * power, -y * kSideEnginePower * power},
                      {position.x + x - tip.x * 17 / kScale,
                       position.y + y + tip.y * kSideEngineHeight / kScale});
  return power;
}

StepResult LanderTask::Judge(double main_power, double side_power) {
  const PlanarMotion motion = world_.Motion(lander_);
  state_[0] = (motion.position.x - kWidth / 2) / (kWidth / 2);
  state_[1] = (motion.position.y - (kHelipadY + kLegDown / kScale)) / (kHeight / 2);
  state_[2] = motion.velocity.x * (kWidth / 2) / kFps;
  state_[3] = motion.velocity.y * (kHeight / 2) / kFps;
  state_[4] = motion.angle;
  state_[5] = 20.0 * motion.angular_velocity / kFps;
  state_[6] = world_.Touches(legs_[0]) ? 1 : 0;
  state_[7] = world_.Touches(legs_[1]) ? 1 : 0;

  // rewards being near, slow, upright and on the legs
  const double shaping = -100 * std::sqrt(state_[0] * state_[0] + state_[1] * state_[1]) -
                         100 * std::sqrt(state_[2] * state_[2] + state_[3] * state_[3]) -
                         100 * std::abs(state_[4]) + 10 * state_[6] + 10 * state_[7];
  double reward = shaping_ ? shaping - *shaping_ : 0;
  shaping_ = shaping;
  reward -= main_power * 0.30;
  reward -= side_power * 0.03;
  bool terminated = false;
  if (world_.HasTouched(lander_) || std::abs(state_[0]) >= 1) {
    terminated = true;
    reward = -100;
  }
  if (!motion.awake) {
    terminated = true;
    reward = 100;
  }
  return StepResult::Of(reward, terminated);
}

void LanderTask::Observe(float* obs) const {
  for (std::int32_t i = 0; i < kNumObs; ++i) obs[i] = static_cast<float>(state_[i]);
}

void LanderTask::AppendScene(std::vector<double>& out) const {
  out.insert(out.end(), std::begin(ground_), std::end(ground_));
  for (const std::int32_t body : {lander_, legs_[0], legs_[1]}) world_.AppendCorners(body, out);
}

}  // namespace rollouts
