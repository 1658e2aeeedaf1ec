// SPDX-License-Identifier: Apache-2.0
// Compares steps of lanes with MuJoCo's own, from the same states: for `rollouts verify-mujoco`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engines/mujoco_abi.h"
#include "rollouts/engines/mujoco_physics.h"
#include "rollouts/lanes/step.h"

namespace rollouts {

// An array that both engines write, one row for each state.
struct ComparedArray {
  std::string name;       // as in mjData
  std::int64_t size = 0;  // numbers in a row
  double* lanes = nullptr;
  double* mujoco = nullptr;
};

// States, one in each row of these arrays.
struct ComparedStates {
  std::int64_t count = 0;
  const double* qpos = nullptr;            // (count, nq)
  const double* qvel = nullptr;            // (count, nv)
  const double* act = nullptr;             // (count, na)
  const double* qacc_warmstart = nullptr;  // (count, nv)
  const double* ctrl = nullptr;            // (count, nu)
};

// Results for the states, other than arrays.
struct ComparedRows {
  std::uint8_t* handed_back = nullptr;  // (count) lanes left this row to MuJoCo
  std::uint8_t* warned = nullptr;       // (count) MuJoCo warned of bad numbers, and reset itself
};

// Runs both. Used by one thread at a time.
class LanesComparer {
 public:
  // Throws EngineError.
  explicit LanesComparer(std::shared_ptr<const PhysicsModel> model);
  ~LanesComparer();

  const PhysicsModel& model() const { return *model_; }
  // The reason why lanes do not cover the model; empty where they do.
  const std::string& why_not() const { return read_.why_not; }

  // Tells for each number of sensordata if lanes write it; the numbers of other sensors stay
  // unchanged.
  std::vector<bool> SensedNumbers() const;

  // Names and sizes of arrays: those of an evaluation, and those that a step changes. Of the
  // latter, those of the state (kNumState) come first.
  std::vector<ComparedArray> StageArrays() const;
  std::vector<ComparedArray> StepArrays() const;
  static constexpr std::size_t kNumState = 5;

  // Evaluates states (mj_forward) into all of StageArrays. In rows that lanes hand back, the arrays
  // of lanes stay unchanged. Throws EngineError.
  void Forward(const ComparedStates& states, std::int32_t width,
               const std::vector<ComparedArray>& arrays, const ComparedRows& rows);
  // Likewise steps states into those of StepArrays that are not null; the arrays of the state may
  // not be null.
  void Step(const ComparedStates& states, const lanes::StepOptions& options,
            const std::vector<ComparedArray>& arrays, const ComparedRows& rows);

 private:
  mjData* data();
  // Computes `count` rows from `first` on by lanes; returns, as bits, those that lanes hand back.
  std::uint64_t ForwardByLanes(const ComparedStates& states, std::int64_t first, std::int64_t count,
                               std::int32_t width, const std::vector<ComparedArray>& arrays);
  std::uint64_t StepByLanes(const ComparedStates& states, std::int64_t first, std::int64_t count,
                            const lanes::StepOptions& options,
                            const std::vector<ComparedArray>& arrays);
  // Computes one row by MuJoCo.
  void ForwardByMujoco(std::int64_t row, const std::vector<ComparedArray>& arrays);
  void StepByMujoco(std::int64_t row, const lanes::StepOptions& options,
                    const std::vector<ComparedArray>& arrays);
  void PutState(const ComparedStates& states, std::int64_t row);
  bool Warned();

  const std::shared_ptr<const PhysicsModel> model_;
  lanes::ModelOrReason read_;
  Physics physics_;
};

}  // namespace rollouts
