// SPDX-License-Identifier: Apache-2.0
// The car of CarRacing, as car_dynamics.py of Gymnasium builds and drives it: a hull and four
// wheels that turn, with tyres whose grip depends on the ground.
#pragma once

#include <array>
#include <cstdint>

#include "race_track.h"
#include "rollouts/engines/planar_world.h"

namespace rollouts::race {

constexpr double kSize = 0.02;
constexpr double kWheelR = 27;
constexpr double kWheelW = 14;
constexpr std::int32_t kNumWheels = 4;
constexpr double kStepSeconds = 1.0 / 50;

struct Wheel {
  std::int32_t body = 0;
  std::int32_t hinge = 0;
  std::int32_t num_tiles = 0;  // tiles of the road that the wheel touches
  double gas = 0;
  double brake = 0;
  double steer = 0;
  double phase = 0;  // angle of rotation, rad
  double omega = 0;  // speed of rotation, rad/s
};

// Corners of the hull's four parts and of a wheel, in units of kSize.
struct Part {
  std::int32_t num_corners;
  std::array<Point, 8> corners;
};
extern const std::array<Part, 4> kHullParts;
extern const Part kWheelPart;

class Car {
 public:
  // Adds the car to the world.
  Car(PlanarWorld& world, double angle, Point at);

  // Sets the direction, -1 to 1; the front wheels take time to turn.
  void Steer(double to);
  // Sets the gas of the rear wheels, 0 to 1, which they take up step by step.
  void Gas(double gas);
  // Sets the brake, 0 to 1; from 0.9 on it blocks the wheels.
  void Brake(double brake);
  // Sets motors and forces for a step.
  void Drive(PlanarWorld& world);

  // Notes that a wheel began or stopped touching a tile. False: the body is not a wheel.
  bool Touch(std::int32_t body, bool begins);

  std::int32_t hull() const { return hull_; }
  const std::array<Wheel, kNumWheels>& wheels() const { return wheels_; }

 private:
  std::int32_t hull_ = 0;
  std::array<Wheel, kNumWheels> wheels_;
};

}  // namespace rollouts::race
