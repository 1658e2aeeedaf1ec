// SPDX-License-Identifier: Apache-2.0
// dm_control's humanoid: it stands, walks or runs. The humanoid of the CMU's motion capture
// (humanoid_cmu.h) has other bodies and the same tasks.
#pragma once

#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/dm_control/suite_task.h"

namespace rollouts::dmc {

// Names of the parts in the two models.
struct HumanoidNames {
  const char* torso;
  std::int32_t up;  // the element of the torso's rotation that is 1 when it is upright
  const char* velocity;
  const char* limbs[4];
};

struct HumanoidTask : SuiteTask {
  static constexpr DataArrays kReads = kXpos | kXmat | kSensordata;
  static constexpr bool kIsApart = true;
  double speed;  // m/s; 0: the task is to stand
  bool pure_state;
  std::int32_t up;
  std::int32_t head;
  std::int32_t torso;
  std::int32_t velocity;  // that of the centre of mass
  std::int32_t limbs[4];

  HumanoidTask(const auto& model, const HumanoidNames& names, double speed, bool pure_state)
      : speed(speed),
        pure_state(pure_state),
        up(names.up),
        head(model.Body("head")),
        torso(model.Body(names.torso)),
        velocity(model.Sensor(names.velocity)) {
    for (std::int32_t i = 0; i < 4; ++i) limbs[i] = model.Body(names.limbs[i]);
  }

  ROLLOUTS_HD void Draw(auto& start, Rng& rng) const { RandomizeJoints(start, rng); }

  ROLLOUTS_HD double Reward(const auto& sim) const {
    constexpr double kStandHeight = 1.4;  // m, of the head
    const double standing =
        Tolerance(sim.data.xpos[3 * head + 2], {kStandHeight, kInf}, kStandHeight / 4);
    const double upright =
        Tolerance(sim.data.xmat[9 * torso + up], {0.9, kInf}, 1.9, Sigmoid::kLinear, 0);
    const double small_control = (4 + SmallControl(sim.data.ctrl, sim.model.nu)) / 5;
    return small_control * (standing * upright) * Moving(sim.data.sensordata + velocity);
  }

  ROLLOUTS_HD void Observe(const auto& sim, Observation& obs) const {
    if (pure_state) {
      obs.Vector("position", sim.data.qpos, sim.model.nq);
    } else {
      obs.Vector("joint_angles", sim.data.qpos + 7, sim.model.nq - 7);
      obs.Scalar("head_height", sim.data.xpos[3 * head + 2]);
      PutExtremities(sim, obs);
      obs.Vector("torso_vertical", sim.data.xmat + 9 * torso + 6, 3);
      obs.Vector("com_velocity", sim.data.sensordata + velocity, 3);
    }
    obs.Vector("velocity", sim.data.qvel, sim.model.nv);
  }

 private:
  template <typename Number>
  ROLLOUTS_HD double Moving(const Number* moves) const {
    if (speed == 0) return (Tolerance(moves[0], {}, 2) + Tolerance(moves[1], {}, 2)) / 2;
    return (5 * Tolerance(mujoco::Norm(moves, 2), {speed, kInf}, speed, Sigmoid::kLinear, 0) + 1) / 6;
  }

  // Puts hands and feet, in the torso's frame.
  ROLLOUTS_HD void PutExtremities(const auto& sim, Observation& obs) const {
    obs.Begin("extremities");
    for (const std::int32_t limb : limbs) {
      double offset[3];
      Subtract(sim.data.xpos + 3 * limb, sim.data.xpos + 3 * torso, offset);
      PutInFrame(offset, sim.data.xmat + 9 * torso, obs);
    }
  }
};

struct Humanoid : HumanoidTask {
  Humanoid(const auto& model, double speed, bool pure_state)
      : HumanoidTask(model,
                     {"torso",
                      8,
                      "torso_subtreelinvel",
                      {"left_hand", "left_foot", "right_hand", "right_foot"}},
                     speed, pure_state) {}
};

inline constexpr double kHumanoidStep = 0.025;  // s
template <typename Entry>
inline constexpr Entry kHumanoidTasks[] = {
    {"HumanoidStand-v1", kHumanoidStep, 30'000, Make<Entry, Humanoid, 0, false>},
    {"HumanoidWalk-v1", kHumanoidStep, 30'000, Make<Entry, Humanoid, 1, false>},
    {"HumanoidRun-v1", kHumanoidStep, 30'000, Make<Entry, Humanoid, 10, false>},
    {"HumanoidRunPureState-v1", kHumanoidStep, 30'000, Make<Entry, Humanoid, 10, true>},
};

}  // namespace rollouts::dmc
