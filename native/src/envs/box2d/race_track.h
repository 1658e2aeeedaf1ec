// SPDX-License-Identifier: Apache-2.0
// The road of CarRacing, made as in car_racing.py of Gymnasium.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "rollouts/envs/box2d/episode_tape.h"

namespace rollouts::race {

// names and values of car_racing.py
constexpr double kScale = 6.0;
constexpr double kPlayfield = 2000 / kScale;  // the car's largest distance from the middle

struct Point {
  double x;
  double y;
};
using Quad = std::array<Point, 4>;

// A piece of the road in the picture: a tile, or the kerb next to one.
struct Piece {
  Quad corners;
  std::int32_t tile;
  bool kerb;
};

struct Road {
  std::vector<Quad> tiles;    // in the order of a lap
  std::vector<Piece> pieces;  // in drawing order
  double start_beta;          // the car's angle at the start
  Point start;
};

// Draws roads until the ends of one meet.
Road LayRoad(TapeDraws& draws);

}  // namespace rollouts::race
