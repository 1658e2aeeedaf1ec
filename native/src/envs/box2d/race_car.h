// SPDX-License-Identifier: Apache-2.0
// The car of CarRacing, as car_dynamics.py of Gymnasium builds and drives it: a hull and four wheels
// that turn, with tyres that hold as much as their ground lets them.
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
  std::int32_t num_tiles = 0;  // tiles of the road that it touches
  double gas = 0;
  double brake = 0;
  double steer = 0;
  double phase = 0;  // how far it has turned, rad
  double omega = 0;  // how fast it turns, rad/s
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
  // Adds it to the world.
  Car(PlanarWorld& world, double angle, Point at);

  // -1 to 1: where to; the front wheels take time to turn.
  void Steer(double to);
  // 0 to 1, of the rear wheels, which take it up step by step.
  void Gas(double gas);
  // 0 to 1; 0.9 and more block the wheels.
  void Brake(double brake);
  // Sets motors and forces of a step.
  void Drive(PlanarWorld& world);

  // A wheel began or ended to touch a tile. False: the body is no wheel.
  bool Touch(std::int32_t body, bool begins);

  std::int32_t hull() const { return hull_; }
  const std::array<Wheel, kNumWheels>& wheels() const { return wheels_; }

 private:
  std::int32_t hull_ = 0;
  std::array<Wheel, kNumWheels> wheels_;
};

}  // namespace rollouts::race
