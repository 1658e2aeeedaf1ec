// SPDX-License-Identifier: Apache-2.0
// CarRacing's picture: the field, the road, the car and the panel below, as car_racing.py of
// Gymnasium draws them with pygame.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "race_car.h"
#include "race_track.h"
#include "rollouts/engines/planar_world.h"

namespace rollouts::race {

// Red, green and blue, 0 to 255; drawing drops the fractions.
using Color = std::array<double, 3>;

struct Colors {
  Color road{102, 102, 102};
  Color field{102, 204, 102};
  Color grass{102, 230, 102};
};

// All that a picture shows; borrows what it refers to.
struct Scene {
  struct Turning {
    PlanarMotion motion;
    double phase;
    double omega;
  };

  const Colors& colors;
  const Road& road;
  const std::vector<std::uint8_t>& was_touched;  // per tile: gives it the road's colour
  PlanarMotion hull;
  double steering;  // angle of a front wheel
  double seconds;   // since the episode began; the camera zooms in during the first
  double score;
  std::array<Turning, kNumWheels> wheels;
};

// Writes (height, width, 3).
void DrawScene(const Scene& scene, std::int32_t width, std::int32_t height, std::uint8_t* rgb);

}  // namespace rollouts::race
