// SPDX-License-Identifier: Apache-2.0
// Tasks of the DeepMind Control Suite (envs/dm_control/suite_task.h) over the arrays of
// mujoco_warp. A start takes several launches where physics runs between its parts
// (rollouts/envs/physics/header_task.py).
#pragma once

#include "rollouts/device/task_kernel.h"
#include "rollouts/engines/suite_views.h"

namespace rollouts {

// An episode's start, which tasks draw; writes it into arrays of mujoco_warp.
class KernelStart {
 public:
  ROLLOUTS_HD KernelStart(const TaskLaunch& launch, std::int64_t world,
                          const BasicModelView<float>& model)
      : model(model),
        qpos(StartOf(launch, world)),
        qvel(qpos + model.nq),
        act(qvel + model.nv),
        launch_(launch),
        world_(world) {}

  ROLLOUTS_HD bool JointLimited(std::int32_t joint) const {
    return launch_.model.jnt_limited[joint] != 0;
  }
  ROLLOUTS_HD double BodyPlace(std::int32_t body, std::int32_t axis) const {
    return launch_.model.body_pos.Row(world_)[3 * body + axis];
  }

  // Writes a drawn field. A field that a device does not have is ignored.
  ROLLOUTS_HD void Put(DrawnField field, std::int32_t at, double value) {
    const TaskModelArrays& arrays = launch_.model;
    const auto number = static_cast<float>(value);
    switch (field) {
      case DrawnField::kGeomPos:
        arrays.geom_pos.Row(world_)[at] = number;
        // no joint moves this geom, so mujoco_warp would not compute its position again
        launch_.data.geom_xpos.Row(world_)[at] = number;
        break;
      case DrawnField::kSitePos: arrays.site_pos.Row(world_)[at] = number; break;
      case DrawnField::kBodyPos:
        arrays.body_pos.Row(world_)[at] = number;
        MoveGeoms(at / 3);
        break;
      case DrawnField::kBodyQuat:
        arrays.body_quat.Row(world_)[at] = number;
        MoveGeoms(at / 4);
        break;
      case DrawnField::kJntStiffness: arrays.jnt_stiffness.Row(world_)[at] = number; break;
      default: break;
    }
  }

  const BasicModelView<float>& model;
  double* const qpos;
  double* const qvel;
  double* const act;
  bool is_placed = false;

 private:
  // Moves the geoms of a body that is fixed to the world, which mujoco_warp would not compute again
  // either.
  ROLLOUTS_HD void MoveGeoms(std::int32_t body) {
    const TaskModelArrays& arrays = launch_.model;
    const float* const place = arrays.body_pos.Row(world_) + 3 * body;
    float rotation[9];
    ToMatrix(arrays.body_quat.Row(world_) + 4 * body, rotation);
    for (std::int32_t geom = 0; geom < arrays.ngeom; ++geom) {
      if (arrays.geom_bodyid[geom] != body) continue;
      const float* const local = arrays.geom_pos.Row(world_) + 3 * geom;
      float own[9];
      ToMatrix(arrays.geom_quat.Row(world_) + 4 * geom, own);
      float* const xpos = launch_.data.geom_xpos.Row(world_) + 3 * geom;
      float* const xmat = launch_.data.geom_xmat.Row(world_) + 9 * geom;
      for (std::int32_t i = 0; i < 3; ++i) {
        const float* const row = rotation + 3 * i;
        xpos[i] = place[i] + row[0] * local[0] + row[1] * local[1] + row[2] * local[2];
        for (std::int32_t j = 0; j < 3; ++j) {
          xmat[3 * i + j] = row[0] * own[j] + row[1] * own[3 + j] + row[2] * own[6 + j];
        }
      }
    }
  }

  // The rotation (3, 3) of a quaternion, whose length is not 1 while only some of its elements are
  // drawn.
  ROLLOUTS_HD static void ToMatrix(const float* q, float* rotation) {
    const float w = q[0], x = q[1], y = q[2], z = q[3];
    rotation[0] = w * w + x * x - y * y - z * z;
    rotation[1] = 2 * (x * y - w * z);
    rotation[2] = 2 * (x * z + w * y);
    rotation[3] = 2 * (x * y + w * z);
    rotation[4] = w * w - x * x + y * y - z * z;
    rotation[5] = 2 * (y * z - w * x);
    rotation[6] = 2 * (x * z - w * y);
    rotation[7] = 2 * (y * z + w * x);
    rotation[8] = w * w - x * x - y * y + z * z;
  }

  const TaskLaunch& launch_;
  const std::int64_t world_;
};

template <typename Task>
class SuiteKernel {
 public:
  ROLLOUTS_HD static void Run(const Block& block, const TaskLaunch& launch) {
    EachMarked(block, launch, [&](std::int64_t world) { RunWorld(launch, world); });
  }

 private:
  ROLLOUTS_HD static void RunWorld(const TaskLaunch& launch, std::int64_t world) {
    const BasicModelView<float> model = ModelOf(launch, world);
    const BasicDataView<float> data = DataOf(launch, world);
    const BasicSimulation<float> sim{model, data, launch.timestep[world] * launch.frame_skip};
    const Task& task = *static_cast<const Task*>(launch.task);
    switch (launch.phase) {
      case TaskPhase::kStep: {
        launch.results.reward[world] = static_cast<float>(task.Reward(sim));
        launch.results.terminated[world] = task.Terminated(sim);
        return;
      }
      case TaskPhase::kObserve: {
        float* const row = launch.results.obs + launch.obs_size * world;
        if (ShowsNothing(launch, world, row)) return;
        NamedObservation obs(reinterpret_cast<std::uint8_t*>(row), /*single=*/true);
        return task.Observe(sim, obs);
      }
      // there are no infos
      case TaskPhase::kReset: return;
      default: Start(launch, world, task, sim);
    }
  }

  ROLLOUTS_HD static void Start(const TaskLaunch& launch, std::int64_t world, const Task& task,
                                const BasicSimulation<float>& sim) {
    const bool begins = launch.phase == TaskPhase::kStart;
    Rng rng = StreamOf(launch, world, begins);
    KernelStart start(launch, world, sim.model);
    // one launch draws everything where no physics runs between the parts
    constexpr bool kAtOnce = !Task::kIsApart && Task::kSubstepsToRest == 0;
    if (begins) {
      ClearStart(launch, world);
      task.DrawModel(start, rng);
      task.Begin(start, rng);
    }
    if (launch.phase == TaskPhase::kDraw || (begins && kAtOnce)) {
      task.Draw(start, rng);
      if constexpr (Task::kPlaces) launch.placed[world] = start.is_placed;
    }
    if (launch.phase == TaskPhase::kPlace && launch.placed[world]) task.Place(start, sim.data);
    if (launch.phase == TaskPhase::kFinish || (begins && kAtOnce)) task.Finish(start, rng);
    // a start draws only numbers of 64 bits, and the generator counts words of 32 bits
    launch.draws[world] = static_cast<std::int32_t>(rng.draws() / 2);
    PutStart(launch, world);
  }
};

}  // namespace rollouts
