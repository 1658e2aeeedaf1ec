// SPDX-License-Identifier: Apache-2.0
#include "rollouts/envs/box2d/car_racing.h"

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "race_car.h"
#include "race_picture.h"
#include "race_track.h"

namespace rollouts {
namespace {

constexpr std::int32_t kObsSide = 96;
constexpr std::int32_t kFrameWidth = 600;
constexpr std::int32_t kFrameHeight = 400;
constexpr std::int32_t kVelocityIterations = 6 * 30;
constexpr std::int32_t kPositionIterations = 2 * 30;
constexpr std::int32_t kStepCostNs = 250'000;  // one core of an EPYC 9004
constexpr PlanarMaterial kTile{.sensor = true};

// the meanings of a discrete action
constexpr float kRight = 1;
constexpr float kLeft = 2;
constexpr float kGas = 3;
constexpr float kBrake = 4;

race::Colors DrawColors(TapeDraws& draws) {
  race::Colors colors;
  for (double& one : colors.road) one = draws.Uniform(0, 210);
  for (double& one : colors.field) one = draws.Uniform(0, 210);
  colors.grass = colors.field;
  colors.grass[draws.Integer(0, 3)] += 20;
  return colors;
}

}  // namespace

struct RaceTask::Race {
  Race(const Config& config, TapeDraws& draws, PlanarWorld& world)
      : colors(config.domain_randomize ? DrawColors(draws) : race::Colors()),
        road(race::LayRoad(draws)),
        first_tile(AddTiles(world)),
        was_touched(road.tiles.size()),
        is_visited(road.tiles.size()),
        car(world, road.start_beta, road.start) {}

  std::int32_t AddTiles(PlanarWorld& world) const {
    std::int32_t first = -1;
    for (const race::Quad& tile : road.tiles) {
      const std::int32_t body = world.AddStaticBody();
      if (first < 0) first = body;
      std::array<PlanarPoint, 4> corners;
      for (std::size_t i = 0; i < corners.size(); ++i) corners[i] = {tile[i].x, tile[i].y};
      world.AddPolygon(body, corners, kTile);
    }
    return first;
  }
  // The tile of a body; -1: the body is not a tile.
  std::int32_t TileOf(std::int32_t body) const {
    const std::int32_t tile = body - first_tile;
    return tile >= 0 && tile < static_cast<std::int32_t>(road.tiles.size()) ? tile : -1;
  }

  race::Colors colors;
  race::Road road;
  std::int32_t first_tile;
  std::vector<std::uint8_t> was_touched;  // per tile: by any part of the car
  std::vector<std::uint8_t> is_visited;   // by a wheel
  race::Car car;
};

EnvSpec RaceTask::MakeSpec(const Config& config) {
  EnvSpec spec;
  spec.observation = {.dtype = DType::kUint8,
                      .ndim = 3,
                      .shape = {kObsSide, kObsSide, 3},
                      .low = {0},
                      .high = {255}};
  if (config.continuous) {
    spec.action = {.dtype = DType::kFloat32,
                   .ndim = 1,
                   .shape = {3},
                   .elementwise = true,
                   .low = {-1, 0, 0},
                   .high = {1, 1, 1}};
  } else {
    spec.action = {.dtype = DType::kInt64, .n = 5};
  }
  spec.step_cost_ns = kStepCostNs;
  spec.infos[spec.num_infos++] = {"lap_finished", DType::kInt8};
  spec.reset_infos = true;
  return spec;
}

std::int32_t RaceTask::ReadAction(const Config& config, const std::uint8_t* bytes,
                                  float* numbers) {
  if (config.continuous) {
    std::memcpy(numbers, bytes, kMaxActions * sizeof(float));
    return kMaxActions;
  }
  std::int32_t index;
  std::memcpy(&index, bytes, sizeof(index));
  numbers[0] = static_cast<float>(index);
  return 1;
}

RaceTask::RaceTask(const Config& config, TapeDraws& draws)
    : config_(config), world_({0, 0}), race_(std::make_unique<Race>(config, draws, world_)) {
  Advance();
}
RaceTask::~RaceTask() = default;

StepResult RaceTask::Step(const float* action, TapeDraws&) {
  Obey(action);
  Advance();

  score_ -= 0.1;
  double reward = score_ - last_score_;
  last_score_ = score_;
  bool terminated = false;
  const auto num_tiles = static_cast<std::int32_t>(race_->road.tiles.size());
  if (num_visited_ == num_tiles || lap_is_complete_) {
    terminated = true;
    lap_finished_ = true;
  }
  const PlanarPoint place = world_.Motion(race_->car.hull()).position;
  if (std::abs(place.x) > race::kPlayfield || std::abs(place.y) > race::kPlayfield) {
    terminated = true;
    lap_finished_ = false;
    reward = -100;
  }
  return StepResult::Of(reward, terminated);
}

void RaceTask::Obey(const float* action) {
  race::Car& car = race_->car;
  if (!config_.continuous) {
    const float index = action[0];
    car.Steer(index == kRight ? -0.6 : index == kLeft ? 0.6 : 0);
    car.Gas(index == kGas ? 0.2 : 0);
    car.Brake(index == kBrake ? 0.8 : 0);
    return;
  }
  for (std::int32_t i = 0; i < kMaxActions; ++i) {
    if (!std::isfinite(action[i])) {
      throw std::runtime_error("element " + std::to_string(i) + " of the action is not finite");
    }
  }
  car.Steer(-double{action[0]});
  car.Gas(action[1]);
  car.Brake(action[2]);
}

void RaceTask::Advance() {
  race_->car.Drive(world_);
  world_.Step(static_cast<float>(race::kStepSeconds), kVelocityIterations, kPositionIterations);
  for (const PlanarContact& contact : world_.Contacts()) {
    const std::int32_t a = race_->TileOf(contact.body_a);
    const std::int32_t tile = a >= 0 ? a : race_->TileOf(contact.body_b);
    if (tile < 0) continue;
    race_->was_touched[tile] = true;
    const std::int32_t other = a >= 0 ? contact.body_b : contact.body_a;
    if (race_->car.Touch(other, contact.begins) && contact.begins) Visit(tile);
  }
  seconds_ += race::kStepSeconds;
  shown_score_ = score_;
}

void RaceTask::Visit(std::int32_t tile) {
  if (race_->is_visited[tile]) return;
  race_->is_visited[tile] = true;
  const auto num_tiles = static_cast<double>(race_->road.tiles.size());
  score_ += 1000.0 / num_tiles;
  ++num_visited_;
  if (tile == 0 && num_visited_ / num_tiles > config_.lap_complete_percent) {
    lap_is_complete_ = true;
  }
}

void RaceTask::Observe(std::uint8_t* obs) const { Draw(shown_score_, kObsSide, kObsSide, obs); }

std::array<std::int32_t, 2> RaceTask::Render(std::vector<std::uint8_t>& rgb) const {
  rgb.resize(3 * kFrameWidth * kFrameHeight);
  Draw(score_, kFrameWidth, kFrameHeight, rgb.data());
  return {kFrameHeight, kFrameWidth};
}

void RaceTask::Draw(double score, std::int32_t width, std::int32_t height,
                    std::uint8_t* rgb) const {
  const race::Car& car = race_->car;
  race::Scene scene{.colors = race_->colors,
                    .road = race_->road,
                    .was_touched = race_->was_touched,
                    .hull = world_.Motion(car.hull()),
                    .steering = world_.Turn(car.wheels()[0].hinge).angle,
                    .seconds = seconds_,
                    .score = score};
  for (std::int32_t i = 0; i < race::kNumWheels; ++i) {
    const race::Wheel& wheel = car.wheels()[i];
    scene.wheels[i] = {world_.Motion(wheel.body), wheel.phase, wheel.omega};
  }
  race::DrawScene(scene, width, height, rgb);
}

}  // namespace rollouts
