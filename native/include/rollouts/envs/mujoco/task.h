// SPDX-License-Identifier: Apache-2.0
// Gymnasium's MuJoCo tasks, on the host and in kernels. Each is a header beside this one, which
// uses only core/ and engines/mujoco_views.h. MujocoEnv runs a task for the CPU pool, and
// device/task_kernel.h runs it over the arrays of mujoco_warp. A task is plain data with
//
//   struct Config     its options, plain data, named as those of Gymnasium's class; a range
//       (low, high) is two options here, ..._min and ..._max
//   static constexpr ModelFile kModel     Gymnasium's model, and substeps of a step
//   static constexpr InfoSpec kInfos[]     the keys of Gymnasium's info, in its order
//   static constexpr ModelNeeds kNeeds     what a user's own model must have
//   static constexpr DataArrays kReads     arrays that it reads besides qpos, qvel, act and ctrl,
//       and cfrc_ext
//   static constexpr std::int32_t kSubstepNs     rough cost of one substep on one core
//   template <class V> static void VisitConfig(Config&, V& visit)     its own options
//   static bool ContactForces(const Config&)     whether it reads cfrc_ext
//   Task(const Config&, const PhysicsModel&)     on the host alone: finds bodies by name
//   void DrawStart(config, model, rng, qpos, qvel) const     changes qpos and qvel, which hold the
//       model's own values
//   void AfterReset(config, sim, infos)     puts the infos that Gymnasium's reset reports, which
//       are the first ones
//   StepResult AfterStep(config, sim, action, infos)     puts all infos
//   void Observe(config, sim, obs) const
//   double before[2]     numbers that it keeps from the last step
//
// all but the constructor and VisitConfig ROLLOUTS_HD. `model` is a BasicModelView and `sim` a
// BasicSimulation, of 64 or 32 bits; a task converts each number that it reads to double. `infos`
// and `obs` are writers. Arithmetic follows Gymnasium's to the order of additions, so that results
// are equal.
#pragma once

#include "rollouts/core/env.h"
#include "rollouts/core/short_text.h"
#include "rollouts/engines/mujoco_views.h"
#include "rollouts/envs/mujoco/task_math.h"

namespace rollouts {

struct ModelFile {
  const char* name;
  std::int32_t frame_skip;  // substeps of the physics per step
};

// The least that a task needs in a model.
struct ModelNeeds {
  std::int32_t nq = 1;
  std::int32_t nv = 1;
  std::int32_t nsite = 0;
};

// The length of an InfoSpec in a task's kInfos that has one number for each tendon of the model.
inline constexpr std::int32_t kPerTendon = -2;

// The kInfos of a task without infos.
struct NoInfos {
  constexpr const InfoSpec* begin() const { return nullptr; }
  constexpr const InfoSpec* end() const { return nullptr; }
};

// The pool's environment of a task; besides a task's own Config, all have these
// options: "rollouts/envs/mujoco/mujoco_env.h"
template <typename Task>
class MujocoEnv;

// The task of an environment, for kernels.
template <typename Env>
struct TaskOf;
template <typename Task>
struct TaskOf<MujocoEnv<Task>> {
  using Type = Task;
};

}  // namespace rollouts
