// SPDX-License-Identifier: Apache-2.0
// Tasks of the DeepMind Control Suite, on the host and in kernels. Each domain is a header beside
// this one, which uses only core/ and the views of engines/, and lists its tasks; the registry puts
// the lists together. DmControl runs a task for the CPU pool, and device/suite_kernel.h runs it
// over the arrays of mujoco_warp. A task is plain data that inherits from SuiteTask, with
//
//   Task(const auto& model, ...)     on the host alone: finds parts of the model by name
//   void Draw(start, rng) const     draws positions
//   double Reward(sim) const
//   void Observe(sim, obs) const
//
// and redefines those members of SuiteTask in which it differs; all but the constructor and
// ChangeModel are ROLLOUTS_HD. `sim` is a BasicSimulation of 64 or 32 bits, in which the values
// derived from positions and velocities are up to date. `start` has `model`, a BasicModelView;
// `qpos`, `qvel` and `act`, in 64 bits; JointLimited(joint); BodyPlace(body, axis) of a child of
// the world's body; and Put(field, i, value), which sets a number of the model for this episode.
// Arithmetic follows dm_control's. Models are those of the dm-control package. All tasks also have
// these
// options: "rollouts/envs/dm_control/dmc_env.h"
#pragma once

#include "rollouts/core/math.h"
#include "rollouts/core/rng.h"
#include "rollouts/engines/mujoco_views.h"
#include "rollouts/engines/suite_views.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts::dmc {

using Observation = NamedObservation;

// The defaults for a task.
struct SuiteTask {
  // arrays of the simulation that the task reads besides qpos, qvel, act and ctrl
  static constexpr DataArrays kReads = kAllArrays & ~kQacc;
  // names of the fields that the task draws on a device, with ", " between them
  static constexpr const char* kDraws = "";
  // Draw is repeated until nothing touches
  static constexpr bool kIsApart = false;
  // each repetition of Draw begins with a reset, and may have more contacts than the memory holds
  static constexpr bool kResetsTries = false;
  // Draw sets start.is_placed where Place is to follow, after body positions are computed from
  // Draw's
  static constexpr bool kPlaces = false;
  // how many numbers of the task's member `measures` are part of a state
  static constexpr std::int32_t kMeasures = 0;
  // substeps in which a start comes to rest, before the episode's time begins
  static constexpr std::int32_t kSubstepsToRest = 0;

  // Sets fields in which the task's model differs from its file: model.Set(field, i, value).
  void ChangeModel(auto&) const {}
  // Draws the changes of the model that the model's own pose depends on; all of them, every time.
  ROLLOUTS_HD void DrawModel(auto&, Rng&) const {}
  // Measures the model's own pose, on the host alone.
  void MeasurePose(const auto&) {}
  // Called once before Draw (Begin), and once after it (Finish).
  ROLLOUTS_HD void Begin(auto&, Rng&) const {}
  ROLLOUTS_HD void Finish(auto&, Rng&) const {}
  ROLLOUTS_HD void Place(auto&, const auto&) const {}
  ROLLOUTS_HD bool Terminated(const auto&) const { return false; }
};

// Element `axis` of a vector (3) in a frame whose axes are the columns of `rotation` (3, 3).
template <typename Number>
ROLLOUTS_HD double Seen(const double* vector, const Number* rotation, std::int32_t axis) {
  return vector[0] * rotation[axis] + vector[1] * rotation[3 + axis] + vector[2] * rotation[6 + axis];
}
template <typename Number>
ROLLOUTS_HD void PutInFrame(const double* vector, const Number* rotation, Observation& obs) {
  for (std::int32_t i = 0; i < 3; ++i) obs.Put(Seen(vector, rotation, i));
}
// The vector (3) from one place to another.
template <typename Number>
ROLLOUTS_HD void Subtract(const Number* to, const Number* from, double* way) {
  for (std::int32_t i = 0; i < 3; ++i) way[i] = static_cast<double>(to[i]) - from[i];
}

// The linear velocity (3) of a point of a body, as by mj_objectVelocity; `root` is the topmost body
// of the body's tree.
template <typename Data, typename Number>
ROLLOUTS_HD void PointVelocity(const Data& data, std::int32_t body, std::int32_t root,
                               const Number* point, double* velocity) {
  double arm[3];
  Subtract(point, data.subtree_com + 3 * root, arm);
  const auto* const turns = data.cvel + 6 * body;
  const double turning[3] = {turns[0], turns[1], turns[2]};
  velocity[0] = turns[3] - (arm[1] * turning[2] - arm[2] * turning[1]);
  velocity[1] = turns[4] - (arm[2] * turning[0] - arm[0] * turning[2]);
  velocity[2] = turns[5] - (arm[0] * turning[1] - arm[1] * turning[0]);
}

// Puts the numbers of all hinges, which begin at `places`.
template <typename Number>
ROLLOUTS_HD void PutHinges(const Number* numbers, const std::int32_t* places, const auto& model,
                           Observation& obs) {
  for (std::int32_t joint = 0; joint < model.njnt; ++joint) {
    if (model.jnt_type[joint] == kHingeJoint) obs.Put(numbers[places[joint]]);
  }
}

// The call with which a domain's module in dm_control writes the XML of a task's model.
struct ModelCall {
  const char* function = "get_model_and_assets";
  const char* arguments = "{}";  // by name; JSON
};
constexpr ModelCall ModelAndAssets(const char* arguments) {
  return {"get_model_and_assets", arguments};
}
constexpr ModelCall MakeModel(const char* arguments) { return {"make_model", arguments}; }

// Makes the TaskEntry (dmc_task.h) of a line of a domain's list: a T with these arguments. `Entry`
// is a parameter because kernels do not have the type.
template <typename Entry, typename T, auto... kArguments>
inline constexpr auto Make = &Entry::template kKind<T, kArguments...>;

}  // namespace rollouts::dmc
