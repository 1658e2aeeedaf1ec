// SPDX-License-Identifier: Apache-2.0
#include "race_car.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace rollouts::race {

const std::array<Part, 4> kHullParts = {
    Part{4, {{{-60, 130}, {60, 130}, {60, 110}, {-60, 110}}}},
    Part{4, {{{-15, 120}, {15, 120}, {20, 20}, {-20, 20}}}},
    Part{8,
         {{{25, 20}, {50, -10}, {50, -40}, {20, -90}, {-20, -90}, {-50, -40}, {-50, -10}, {-25, 20}}}},
    Part{4, {{{-50, -120}, {50, -120}, {50, -90}, {-50, -90}}}}};
const Part kWheelPart = {
    4, {{{-kWheelW, kWheelR}, {kWheelW, kWheelR}, {kWheelW, -kWheelR}, {-kWheelW, -kWheelR}}}};

namespace {

// names and values of car_dynamics.py
constexpr double kEnginePower = 100000000 * kSize * kSize;
constexpr double kWheelInertia = 4000 * kSize * kSize;
constexpr double kFrictionLimit = 1000000 * kSize * kSize;
constexpr double kGrass = 0.6;  // share of the road's friction
constexpr double kBrakeForce = 15;
constexpr double kStiffness = 205000 * kSize * kSize;
constexpr double kWheelRad = kWheelR * kSize;
constexpr auto kMaxTorque = static_cast<float>(180 * 900 * kSize * kSize);
constexpr Point kWheelPlaces[kNumWheels] = {{-55, 80}, {55, 80}, {-55, -82}, {55, -82}};

constexpr PlanarMaterial kHull{.density = 1};
constexpr PlanarMaterial kTyre{.density = 0.1F, .category = 0x0020, .mask = 0x001};

double Sign(double value) { return (value > 0) - (value < 0); }

void AddPart(PlanarWorld& world, std::int32_t body, const Part& part,
             const PlanarMaterial& material) {
  std::array<PlanarPoint, 8> corners;
  for (std::int32_t i = 0; i < part.num_corners; ++i) {
    corners[i] = {part.corners[i].x * kSize, part.corners[i].y * kSize};
  }
  world.AddPolygon(body, std::span(corners).first(part.num_corners), material);
}

// Changes a wheel's speed of rotation by gas and brake.
void Spin(Wheel& wheel) {
  wheel.omega += kStepSeconds * kEnginePower * wheel.gas / kWheelInertia /
                 (std::abs(wheel.omega) + 5.0);
  if (wheel.brake >= 0.9) {
    wheel.omega = 0;
  } else if (wheel.brake > 0) {
    const double most = std::abs(wheel.omega);
    wheel.omega += -Sign(wheel.omega) * std::min(kBrakeForce * wheel.brake, most);
  }
  wheel.phase += wheel.omega * kStepSeconds;
}

// Lets the tyre push the car, which also slows the wheel down.
void Push(Wheel& wheel, PlanarWorld& world) {
  const double limit = kFrictionLimit * (wheel.num_tiles > 0 ? 1.0 : kGrass);
  const PlanarMotion motion = world.Motion(wheel.body);
  const Point side{motion.right.x, motion.right.y};
  const Point ahead{-side.y, side.x};
  const double speed_ahead = ahead.x * motion.velocity.x + ahead.y * motion.velocity.y;
  const double speed_aside = side.x * motion.velocity.x + side.y * motion.velocity.y;

  double force_ahead = (-speed_ahead + wheel.omega * kWheelRad) * kStiffness;
  double force_aside = -speed_aside * kStiffness;
  const double force = std::sqrt(force_ahead * force_ahead + force_aside * force_aside);
  if (force > limit) {
    force_ahead = force_ahead / force * limit;
    force_aside = force_aside / force * limit;
  }
  wheel.omega -= kStepSeconds * force_ahead * kWheelRad / kWheelInertia;
  world.ApplyForce(wheel.body, {force_aside * side.x + force_ahead * ahead.x,
                                force_aside * side.y + force_ahead * ahead.y});
}

}  // namespace

Car::Car(PlanarWorld& world, double angle, Point at) {
  hull_ = world.AddBody({at.x, at.y}, angle);
  for (const Part& part : kHullParts) AddPart(world, hull_, part, kHull);
  for (std::int32_t i = 0; i < kNumWheels; ++i) {
    // not turned with the hull, because the joints pull the wheels to their places
    const Point place{kWheelPlaces[i].x * kSize, kWheelPlaces[i].y * kSize};
    Wheel& wheel = wheels_[i];
    wheel.body = world.AddBody({at.x + place.x, at.y + place.y}, angle);
    AddPart(world, wheel.body, kWheelPart, kTyre);
    wheel.hinge = world.AddHinge({.body_a = hull_,
                                  .body_b = wheel.body,
                                  .anchor_a = {place.x, place.y},
                                  .anchor_b = {0, 0},
                                  .max_torque = kMaxTorque,
                                  .motor_speed = 0,
                                  .lower_angle = -0.4F,
                                  .upper_angle = 0.4F});
  }
}

void Car::Steer(double to) { wheels_[0].steer = wheels_[1].steer = to; }

void Car::Gas(double gas) {
  gas = std::clamp(gas, 0.0, 1.0);
  for (Wheel* wheel : {&wheels_[2], &wheels_[3]}) wheel->gas += std::min(gas - wheel->gas, 0.1);
}

void Car::Brake(double brake) {
  for (Wheel& wheel : wheels_) wheel.brake = brake;
}

void Car::Drive(PlanarWorld& world) {
  for (Wheel& wheel : wheels_) {
    const double off = wheel.steer - world.Turn(wheel.hinge).angle;
    world.SetMotor(wheel.hinge,
                   static_cast<float>(Sign(off) * std::min(50.0 * std::abs(off), 3.0)), kMaxTorque);
    Spin(wheel);
    Push(wheel, world);
  }
}

bool Car::Touch(std::int32_t body, bool begins) {
  for (Wheel& wheel : wheels_) {
    if (wheel.body != body) continue;
    wheel.num_tiles += begins ? 1 : -1;
    return true;
  }
  return false;
}

}  // namespace rollouts::race
