// SPDX-License-Identifier: Apache-2.0
// BipedalWalker-v3 of Gymnasium (bipedal_walker.py) on the engine that it uses: with the same draws
// and actions, observations, rewards and ends are equal to the bit to those of the reference's
// first episode. The reference makes later episodes in the world of the earlier ones, and they
// differ for that reason.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rollouts/engines/planar_world.h"
#include "rollouts/envs/box2d/box2d_env.h"

namespace rollouts {

class WalkerTask {
 public:
  struct Config {
    bool hardcore = false;  // with stumps, stairs and pits
  };
  using Obs = float;
  static constexpr std::int32_t kMaxActions = 4;
  static constexpr std::int32_t kNumObs = 24;

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("hardcore", config.hardcore);
  }
  template <typename Check>
  static void CheckConfig(const Config&, Check&) {}
  static EnvSpec MakeSpec(const Config& config);
  static std::int32_t NumActions(const Config&) { return kMaxActions; }
  static std::int32_t ReadAction(const Config& config, const std::uint8_t* bytes, float* numbers);

  WalkerTask(const Config& config, TapeDraws& draws);
  StepResult Step(const float* action, TapeDraws& draws);
  void Observe(float* obs) const;
  // Appends the hull's x, heights of the ground, and corners: of the clouds, of the hull and of the
  // legs from the first hip downwards, then of the obstacles.
  void AppendScene(std::vector<double>& out) const;

 private:
  static constexpr std::int32_t kNumRays = 10;

  void AddLegs(double x, double y);
  void Look(const PlanarMotion& hull);
  StepResult Judge(const float* action, const PlanarMotion& hull);

  PlanarWorld world_;
  std::vector<double> ground_;
  std::vector<double> clouds_;
  std::vector<std::int32_t> obstacles_;
  std::int32_t hull_ = 0;
  std::int32_t upper_legs_[2] = {};
  std::int32_t lower_legs_[2] = {};
  std::optional<double> shaping_;
  double state_[kNumObs] = {};
};

using BipedalWalker = Box2DEnv<WalkerTask>;

struct HardcoreWalkerTask : WalkerTask {
  struct Config : WalkerTask::Config {
    Config() { hardcore = true; }
  };
  using WalkerTask::WalkerTask;
};
using BipedalWalkerHardcore = Box2DEnv<HardcoreWalkerTask>;

}  // namespace rollouts
