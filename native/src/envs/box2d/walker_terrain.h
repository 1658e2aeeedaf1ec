// SPDX-License-Identifier: Apache-2.0
// The ground of BipedalWalker: a line of small steps, and in its hardcore form stumps, stairs and
// pits on it, drawn in the order in which bipedal_walker.py draws them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "rollouts/engines/planar_world.h"
#include "rollouts/envs/box2d/episode_tape.h"

namespace rollouts::walker {

inline constexpr double kScale = 30.0;  // pixels in a metre
inline constexpr double kViewportWidth = 600;
inline constexpr double kViewportHeight = 400;
inline constexpr double kTerrainStep = 14 / kScale;
inline constexpr std::int32_t kTerrainLength = 200;  // steps
inline constexpr double kTerrainHeight = kViewportHeight / kScale / 4;
inline constexpr std::int32_t kTerrainGrass = 10;      // the most steps between obstacles
inline constexpr std::int32_t kTerrainStartpad = 20;   // steps

struct Corner {
  double x = 0;
  double y = 0;
};

class Terrain {
 public:
  // Draws the line and the obstacles.
  Terrain(bool hardcore, TapeDraws& draws);

  // Returns the obstacles' bodies.
  std::vector<std::int32_t> AddTo(PlanarWorld& world) const;
  const std::array<double, kTerrainLength>& heights() const { return heights_; }

 private:
  enum State { kGrass, kStump, kStairs, kPit, kNumStates };
  using Box = std::array<Corner, 4>;

  // Sets the height of the line at step `i`, and adds the obstacle that begins there.
  void Advance(std::int32_t i, TapeDraws& draws);
  void BeginPit(double x, TapeDraws& draws);
  void BeginStump(double x, TapeDraws& draws);
  void BeginStairs(double x, TapeDraws& draws);

  std::vector<Box> boxes_;
  std::array<double, kTerrainLength> heights_ = {};

  // the state of the drawing
  State state_ = kGrass;
  bool first_ = false;  // the first step of this state
  double velocity_ = 0;
  double y_ = kTerrainHeight;
  double obstacle_y_ = 0;
  std::int32_t counter_ = kTerrainStartpad;
  std::int32_t stair_steps_ = 0;
  std::int32_t stair_width_ = 0;
  std::int32_t stair_height_ = 0;
};

}  // namespace rollouts::walker
