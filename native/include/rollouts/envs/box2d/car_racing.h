// SPDX-License-Identifier: Apache-2.0
// CarRacing-v3 of Gymnasium (car_racing.py, car_dynamics.py) on the engine that it uses: with the
// same draws and actions, rewards, ends and the car's motion are equal to the bit to those of the
// reference's first episode. The reference makes later episodes in the world of the earlier ones.
// The image is drawn as pygame draws it, pixel for pixel except for the shape of the score's
// digits.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "rollouts/engines/planar_world.h"
#include "rollouts/envs/box2d/box2d_env.h"

namespace rollouts {

class RaceTask {
 public:
  struct Config {
    double lap_complete_percent = 0.95;  // share of the tiles a lap must have visited, 0 to 1
    bool domain_randomize = false;       // road and grass in other colours each episode
    bool randomize = true;   // with domain_randomize; false: keeps the last episode's colours
    bool continuous = true;  // actions are (steering, gas, brake), else one of five
  };
  using Obs = std::uint8_t;
  static constexpr std::int32_t kMaxActions = 3;

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("lap_complete_percent", config.lap_complete_percent);
    visit("domain_randomize", config.domain_randomize);
    visit("randomize", config.randomize);
    visit("continuous", config.continuous);
  }
  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Finite("lap_complete_percent", config.lap_complete_percent);
  }
  static EnvSpec MakeSpec(const Config& config);
  // The number of colour components that the next episode may keep.
  static std::size_t NumLasting(const Config& config) { return config.domain_randomize ? 7 : 0; }
  static bool DrawsAnew(const Config& config) { return config.randomize; }
  static std::int32_t NumActions(const Config& config) { return config.continuous ? 3 : 1; }
  static std::int32_t ReadAction(const Config& config, const std::uint8_t* bytes, float* numbers);

  RaceTask(const Config& config, TapeDraws& draws);
  ~RaceTask();
  StepResult Step(const float* action, TapeDraws& draws);
  void Observe(std::uint8_t* obs) const;
  void WriteInfo(double* values) const { values[0] = lap_finished_; }
  // Appends nothing, because Render draws the image.
  void AppendScene(std::vector<double>&) const {}
  // (400, 600, 3), as Gymnasium's rgb_array without the marks of skidding wheels.
  std::array<std::int32_t, 2> Render(std::vector<std::uint8_t>& rgb) const;

 private:
  struct Race;

  void Obey(const float* action);
  void Advance();
  void Visit(std::int32_t tile);
  void Draw(double score, std::int32_t width, std::int32_t height, std::uint8_t* rgb) const;

  const Config config_;
  PlanarWorld world_;
  std::unique_ptr<Race> race_;
  double seconds_ = 0;
  double score_ = 0;
  double shown_score_ = 0;  // in the observation; without the step's own cost
  double last_score_ = 0;
  std::int32_t num_visited_ = 0;
  bool lap_is_complete_ = false;
  bool lap_finished_ = false;
};

using CarRacing = Box2DEnv<RaceTask>;

}  // namespace rollouts
