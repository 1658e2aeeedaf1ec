// SPDX-License-Identifier: Apache-2.0
// The road of CarRacing, as car_racing.py of Gymnasium lays it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "rollouts/envs/box2d/episode_tape.h"

namespace rollouts::race {

// names and values of car_racing.py
constexpr double kScale = 6.0;
constexpr double kPlayfield = 2000 / kScale;  // the car may not be further from the middle

struct Point {
  double x;
  double y;
};
using Quad = std::array<Point, 4>;

// A drawn piece of the road: a tile, or the kerb next to one.
struct Piece {
  Quad corners;
  std::int32_t tile;
  bool kerb;
};

struct Road {
  std::vector<Quad> tiles;    // in the order of a lap
  std::vector<Piece> pieces;  // in the order they are drawn
  double start_beta;          // where the car begins: its angle and its place
  Point start;
};

// Draws until the road's ends meet.
Road LayRoad(TapeDraws& draws);

}  // namespace rollouts::race
