// SPDX-License-Identifier: Apache-2.0
// Lanes' steps beside MuJoCo's own, from the same states: what `rollouts verify-mujoco` looks at.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

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

// What becomes of the states, beside arrays.
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
  // Empty where lanes cover the model.
  const std::string& why_not() const { return read_.why_not; }

  // Names and sizes of arrays: those of an evaluation, and those that a step moves or leaves.
  std::vector<ComparedArray> StageArrays() const;
  std::vector<ComparedArray> StepArrays() const;

  // Evaluates states (mj_forward). Each array is written where it is not null. The rows that lanes
  // have handed back keep what was there. Throws EngineError.
  void Forward(const ComparedStates& states, std::int32_t width,
               const std::vector<ComparedArray>& arrays, const ComparedRows& rows);
  // Steps states, alike. Without the first of StepArrays, which are the state, nothing can go on:
  // they are all there.
  void Step(const ComparedStates& states, const lanes::StepOptions& options,
            const std::vector<ComparedArray>& arrays, const ComparedRows& rows);

 private:
  void PutState(const ComparedStates& states, std::int64_t row);
  bool Warned() const;

  const std::shared_ptr<const PhysicsModel> model_;
  lanes::ModelOrReason read_;
  Physics physics_;
};

}  // namespace rollouts
