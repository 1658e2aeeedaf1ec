// SPDX-License-Identifier: Apache-2.0
#include "walker_terrain.h"

namespace rollouts::walker {
namespace {

constexpr PlanarMaterial kRock{.friction = 2.5F};
constexpr double kPitDepth = 4 * kTerrainStep;

double Sign(double value) { return value > 0 ? 1 : value < 0 ? -1 : 0; }

}  // namespace

Terrain::Terrain(bool hardcore, TapeDraws& draws) {
  for (std::int32_t i = 0; i < kTerrainLength; ++i) {
    Advance(i, draws);
    first_ = false;
    heights_[i] = y_;
    if (--counter_ != 0) continue;
    // grass and obstacles alternate
    counter_ = draws.Integer(kTerrainGrass / 2, kTerrainGrass);
    state_ = state_ == kGrass && hardcore ? static_cast<State>(draws.Integer(kStump, kNumStates))
                                          : kGrass;
    first_ = true;
  }
}

void Terrain::Advance(std::int32_t i, TapeDraws& draws) {
  const double x = i * kTerrainStep;
  switch (state_) {
    case kGrass:
      if (first_) return;
      velocity_ = 0.8 * velocity_ + 0.01 * Sign(kTerrainHeight - y_);
      if (i > kTerrainStartpad) velocity_ += draws.Uniform(-1, 1) / kScale;
      y_ += velocity_;
      return;
    case kPit:
      if (first_) return BeginPit(x, draws);
      y_ = obstacle_y_;
      if (counter_ > 1) y_ -= kPitDepth;
      return;
    case kStump:
      if (first_) BeginStump(x, draws);
      return;
    case kStairs: {
      if (first_) return BeginStairs(x, draws);
      const double done = stair_steps_ * stair_width_ - counter_ - stair_height_;
      y_ = obstacle_y_ + (done / stair_width_ * stair_height_) * kTerrainStep;
      return;
    }
    case kNumStates: return;
  }
}

// Adds a pit's two walls; the line between them is its ground.
void Terrain::BeginPit(double x, TapeDraws& draws) {
  counter_ = draws.Integer(3, 5);
  Box wall = {{{x, y_},
               {x + kTerrainStep, y_},
               {x + kTerrainStep, y_ - kPitDepth},
               {x, y_ - kPitDepth}}};
  boxes_.push_back(wall);
  for (Corner& corner : wall) corner.x += kTerrainStep * counter_;
  boxes_.push_back(wall);
  counter_ += 2;
  obstacle_y_ = y_;
}

void Terrain::BeginStump(double x, TapeDraws& draws) {
  counter_ = draws.Integer(1, 3);
  const double size = counter_ * kTerrainStep;
  boxes_.push_back({{{x, y_}, {x + size, y_}, {x + size, y_ + size}, {x, y_ + size}}});
}

void Terrain::BeginStairs(double x, TapeDraws& draws) {
  stair_height_ = draws.Uniform(0, 1) > 0.5 ? 1 : -1;
  stair_width_ = draws.Integer(4, 5);
  stair_steps_ = draws.Integer(3, 5);
  obstacle_y_ = y_;
  for (std::int32_t s = 0; s < stair_steps_; ++s) {
    const double left = x + (s * stair_width_) * kTerrainStep;
    const double right = x + ((1 + s) * stair_width_) * kTerrainStep;
    const double top = y_ + (s * stair_height_) * kTerrainStep;
    const double bottom = y_ + (-1 + s * stair_height_) * kTerrainStep;
    boxes_.push_back({{{left, top}, {right, top}, {right, bottom}, {left, bottom}}});
  }
  counter_ = stair_steps_ * stair_width_;
}

// Adds bodies in the reference's order, because the order of contacts depends on it.
std::vector<std::int32_t> Terrain::AddTo(PlanarWorld& world) const {
  std::vector<std::int32_t> obstacles;
  for (const Box& box : boxes_) {
    std::array<PlanarPoint, 4> corners;
    for (std::size_t i = 0; i < corners.size(); ++i) corners[i] = {box[i].x, box[i].y};
    obstacles.push_back(world.AddStaticBody());
    world.AddPolygon(obstacles.back(), corners, kRock);
  }
  for (std::int32_t i = 0; i + 1 < kTerrainLength; ++i) {
    world.AddEdge(world.AddStaticBody(), {i * kTerrainStep, heights_[i]},
                  {(i + 1) * kTerrainStep, heights_[i + 1]}, kRock);
  }
  return obstacles;
}

}  // namespace rollouts::walker
