// SPDX-License-Identifier: Apache-2.0
// LunarLander-v3 of Gymnasium (lunar_lander.py) on the engine that it uses: with the same draws
// and actions, observations, rewards and ends are equal to the bit. The reference's particles,
// which only serve its drawings, are left out.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rollouts/engines/planar_world.h"
#include "rollouts/envs/box2d/box2d_env.h"

namespace rollouts {

class LanderTask {
 public:
  struct Config {
    bool continuous = false;   // actions are (main, lateral) from -1 to 1, else one of four
    double gravity = -10;      // m/s^2, between -12 and 0
    bool enable_wind = false;  // gusts of force and torque, until a leg touches the ground
    double wind_power = 15;         // largest force, N; Gymnasium recommends 0 to 20
    double turbulence_power = 1.5;  // largest torque, N m; Gymnasium recommends 0 to 2
  };
  using Obs = float;
  static constexpr std::int32_t kMaxActions = 2;
  static constexpr std::int32_t kNumObs = 8;

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("continuous", config.continuous);
    visit("gravity", config.gravity);
    visit("enable_wind", config.enable_wind);
    visit("wind_power", config.wind_power);
    visit("turbulence_power", config.turbulence_power);
  }
  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Between("gravity", config.gravity, std::nextafter(-12.0, 0.0), std::nextafter(0.0, -12.0));
    check.Finite("wind_power", config.wind_power);
    check.Finite("turbulence_power", config.turbulence_power);
  }
  static EnvSpec MakeSpec(const Config& config);
  static std::int32_t NumActions(const Config& config) { return config.continuous ? 2 : 1; }
  static std::int32_t ReadAction(const Config& config, const std::uint8_t* bytes, float* numbers);

  LanderTask(const Config& config, TapeDraws& draws);
  StepResult Step(const float* action, TapeDraws& draws);
  void Observe(float* obs) const;
  // Appends heights of the ground, then corners of the lander and its legs.
  void AppendScene(std::vector<double>& out) const;

 private:
  static constexpr std::int32_t kChunks = 11;

  struct Direction {
    double x;
    double y;
  };

  void AddGround(TapeDraws& draws);
  void AddLegs();
  void Blow();
  double FireMain(const float* action, Direction tip, const double* dispersion);
  double FireSide(const float* action, Direction tip, const double* dispersion);
  StepResult Judge(double main_power, double side_power);

  const Config config_;
  PlanarWorld world_;
  double ground_[kChunks] = {};
  std::int32_t lander_ = 0;
  std::int32_t legs_[2] = {};
  std::int32_t wind_index_ = 0;
  std::int32_t torque_index_ = 0;
  std::optional<double> shaping_;
  double state_[kNumObs] = {};
};

using LunarLander = Box2DEnv<LanderTask>;

struct ContinuousLanderTask : LanderTask {
  struct Config : LanderTask::Config {
    Config() { continuous = true; }
  };
  using LanderTask::LanderTask;
};
using LunarLanderContinuous = Box2DEnv<ContinuousLanderTask>;

}  // namespace rollouts
