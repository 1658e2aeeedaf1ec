// SPDX-License-Identifier: Apache-2.0
// dm_control's cartpole: a cart balances one or several poles, one on top of the other.
#pragma once

#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

struct Cartpole : SuiteTask {
  static constexpr DataArrays kReads = kXmat;
  bool swing_up;  // the poles hang down at the start
  bool sparse;
  std::int32_t slider;
  std::int32_t hinge;

  Cartpole(const auto& model, bool swing_up, bool sparse)
      : swing_up(swing_up),
        sparse(sparse),
        slider(model.Position("slider")),
        hinge(model.Position("hinge_1")) {}

  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const {
    const std::int32_t nv = start.model.nv;
    if (swing_up) {
      start.qpos[slider] = 0.01 * mujoco::StandardNormal(rng);
      start.qpos[hinge] = kPi + 0.01 * mujoco::StandardNormal(rng);
      for (std::int32_t i = 2; i < nv; ++i) start.qpos[i] = 0.1 * mujoco::StandardNormal(rng);
    } else {
      start.qpos[slider] = rng.Uniform(-0.1, 0.1);
      for (std::int32_t i = 1; i < nv; ++i) start.qpos[i] = rng.Uniform(-0.034, 0.034);
    }
    for (std::int32_t i = 0; i < nv; ++i) start.qvel[i] = 0.01 * mujoco::StandardNormal(rng);
  }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    return sparse ? SparseReward(sim) : SmoothReward(sim);
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    obs.Begin("position");
    obs.Put(sim.data.qpos[slider]);
    for (std::int32_t body = kFirstPole; body < sim.model.nbody; ++body) {
      obs.Put(Cosine(sim, body));
      obs.Put(sim.data.xmat[9 * body + 2]);
    }
    obs.Vector("velocity", sim.data.qvel, sim.model.nv);
  }

 private:
  static constexpr std::int32_t kFirstPole = 2;  // a body, after the world and the cart

  ROLLOUTS_HD static double Cosine(const auto& sim, std::int32_t body) {
    return sim.data.xmat[9 * body + 8];
  }

  ROLLOUTS_HD double SparseReward(const auto& sim) const {
    double reward = Tolerance(sim.data.qpos[slider], {-0.25, 0.25});
    for (std::int32_t body = kFirstPole; body < sim.model.nbody; ++body) {
      reward *= Tolerance(Cosine(sim, body), {0.995, 1});
    }
    return reward;
  }

  ROLLOUTS_HD double SmoothReward(const auto& sim) const {
    double upright = 0;
    for (std::int32_t body = kFirstPole; body < sim.model.nbody; ++body) {
      upright += (Cosine(sim, body) + 1) / 2;
    }
    upright /= sim.model.nbody - kFirstPole;
    const double centered = (1 + Tolerance(sim.data.qpos[slider], {}, 2)) / 2;
    const double small_control =
        (4 + Tolerance(sim.data.ctrl[0], {}, 1, Sigmoid::kQuadratic, 0)) / 5;
    double small_velocity = 1;
    for (std::int32_t i = 1; i < sim.model.nv; ++i) {
      const double small = Tolerance(sim.data.qvel[i], {}, 5);
      small_velocity = small < small_velocity ? small : small_velocity;
    }
    return upright * small_control * ((1 + small_velocity) / 2) * centered;
  }
};

template <typename Entry>
inline constexpr Entry kCartpoleTasks[] = {
    {"CartpoleBalance-v1", 0, 4'000, Make<Entry, Cartpole, false, false>},
    {"CartpoleBalanceSparse-v1", 0, 4'000, Make<Entry, Cartpole, false, true>},
    {"CartpoleSwingup-v1", 0, 4'000, Make<Entry, Cartpole, true, false>},
    {"CartpoleSwingupSparse-v1", 0, 4'000, Make<Entry, Cartpole, true, true>},
    {"CartpoleTwoPoles-v1", 0, 5'000, Make<Entry, Cartpole, true, false>,
     ModelAndAssets(R"({"num_poles": 2})")},
    {"CartpoleThreePoles-v1", 0, 6'000, Make<Entry, Cartpole, true, false>,
     ModelAndAssets(R"({"num_poles": 3})")},
};

}  // namespace rollouts::dmc
