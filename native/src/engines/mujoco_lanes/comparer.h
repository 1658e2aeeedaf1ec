// SPDX-License-Identifier: Apache-2.0
// Lanes' steps beside MuJoCo's own, from the same states: what `rollouts verify-mujoco` looks at.
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

// An array of which both engines make rows, one for each state.
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

// Results of the states, besides arrays.
struct ComparedRows {
  std::uint8_t* handed_back = nullptr;  // (count) left to MuJoCo by lanes
  std::uint8_t* warned = nullptr;       // (count) MuJoCo has warned of numbers, and reset itself
};

// Runs both. Used by one thread at a time.
class LanesComparer {
 public:
  // Throws EngineError.
  explicit LanesComparer(std::shared_ptr<const PhysicsModel> model);
  ~LanesComparer();

  const PhysicsModel& model() const { return *model_; }
  // The reason; empty where lanes cover the model.
  const std::string& why_not() const { return read_.why_not; }

  // Whether lanes write each number of sensordata; those of other sensors they leave alone.
  std::vector<bool> SensedNumbers() const;

  // Names and sizes of arrays: those of an evaluation, and those that a step moves or leaves, of which
  // the state's (kNumState) come first.
  std::vector<ComparedArray> StageArrays() const;
  std::vector<ComparedArray> StepArrays() const;
  static constexpr std::size_t kNumState = 5;

  // Evaluates states (mj_forward) into all of StageArrays. Rows that lanes hand back keep what their
  // arrays hold. Throws EngineError.
  void Forward(const ComparedStates& states, std::int32_t width,
               const std::vector<ComparedArray>& arrays, const ComparedRows& rows);
  // Steps states, alike, into those of StepArrays that are not null; the state's are not.
  void Step(const ComparedStates& states, const lanes::StepOptions& options,
            const std::vector<ComparedArray>& arrays, const ComparedRows& rows);

 private:
  mjData* data();
  // Computes some rows from the `first` on by lanes; returns as bits those that are handed back.
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
