// SPDX-License-Identifier: Apache-2.0
// MuJoCo's tasks over the arrays of mujoco_warp, on a GPU or on the host in its place: a thread for
// each world. envs/mujoco/task.h defines a task; those of the DeepMind Control Suite have another
// kernel (suite_kernel.h). rollouts/envs/physics/kernels/world_episodes.py handles the clock and the
// rows of a step.
#pragma once

#include "rollouts/core/env.h"
#include "rollouts/core/rng.h"
#include "rollouts/device/grid.h"
#include "rollouts/device/launch.h"
#include "rollouts/engines/mujoco_views.h"
#include "rollouts/engines/observation_writer.h"

namespace rollouts {

enum class TaskPhase : std::int32_t {
  kStart,    // positions, velocities and clocks of worlds that begin an episode
  kReset,    // the first infos
  kStep,     // reward, end and infos
  kObserve,  // observations
  // only for tasks of the DeepMind Control Suite: suite_kernel.h
  kDraw,    // positions, drawn again
  kPlace,   // body positions that follow from these
  kFinish,  // the rest of a start
};

// An array of mujoco_warp with a row for each of N worlds or, where the stride is 0, one row for
// all.
struct TaskRows {
  float* first;
  std::int64_t stride;  // numbers

  ROLLOUTS_HD float* Row(std::int64_t world) const { return first + stride * world; }
};

struct TaskModelArrays {
  std::int32_t nq, nv, nu, na, nbody, ngeom, nsite, ntendon, njnt, nsensordata;
  const std::int32_t* jnt_type;     // (njnt) this and the next are shared by all worlds
  const std::int32_t* jnt_qposadr;  // (njnt)
  const std::int32_t* jnt_dofadr;   // (njnt)
  const std::int32_t* jnt_limited;  // (njnt)
  const std::int32_t* geom_bodyid;  // (ngeom)
  const double* start_qpos;         // (nq) positions around which starts are drawn
  std::int64_t start_qpos_stride;
  TaskRows qpos0, gravity, body_mass, body_subtreemass, body_pos, body_quat, jnt_range,
      jnt_stiffness, geom_size, geom_pos, geom_quat, site_size, site_pos, actuator_ctrlrange;
};
struct TaskDataArrays {
  TaskRows qpos, qvel, act, ctrl, xpos, xquat, xmat, xipos, geom_xpos, geom_xmat, site_xpos,
      site_xmat, sensordata, subtree_com, cinert, cvel, cfrc_ext, qfrc_actuator, qfrc_constraint,
      ten_length, ten_velocity;
};
struct TaskResults {
  double* before;  // (N, 2)
  float* reward;
  std::uint8_t* terminated;
  float* infos;  // (N, num_infos)
  float* obs;    // (N, obs_size)
};

// Arguments of a launch. The same bytes on host and device; rollouts/envs/kernel/task_launch.py
// writes them.
struct TaskLaunch {
  std::int64_t num_envs;
  const std::uint8_t* marked;  // (N) worlds that the launch is for
  const void* task;            // made by the host from names in the model
  const void* configs;         // (N)
  const double* timestep;      // (N) seconds of a substep
  double* starts;              // (N, nq + nv + na) positions, velocities, activations of starts
  TaskModelArrays model;
  TaskDataArrays data;
  ClockColumns clock;
  std::int32_t* draws;        // (N) how many 64-bit numbers an episode has drawn
  std::uint8_t* broken;       // (N) the world's observation is zeros
  std::uint8_t* placed;       // (N) Place follows next
  TaskResults results;
  TaskPhase phase;
  std::int32_t frame_skip;
  std::int32_t num_infos;
  std::int32_t obs_size;
};

ROLLOUTS_HD inline BasicModelView<float> ModelOf(const TaskLaunch& launch, std::int64_t world) {
  const TaskModelArrays& from = launch.model;
  BasicModelView<float> model;
  model.nq = from.nq;
  model.nv = from.nv;
  model.nu = from.nu;
  model.na = from.na;
  model.nbody = from.nbody;
  model.nsite = from.nsite;
  model.ntendon = from.ntendon;
  model.njnt = from.njnt;
  model.nsensordata = from.nsensordata;
  model.timestep = launch.timestep[world];
  model.jnt_type = from.jnt_type;
  model.jnt_qposadr = from.jnt_qposadr;
  model.jnt_dofadr = from.jnt_dofadr;
  model.gravity = from.gravity.Row(world);
  model.qpos0 = from.qpos0.Row(world);
  model.body_mass = from.body_mass.Row(world);
  model.body_subtreemass = from.body_subtreemass.Row(world);
  model.jnt_range = from.jnt_range.Row(world);
  model.geom_size = from.geom_size.Row(world);
  model.site_size = from.site_size.Row(world);
  model.actuator_ctrlrange = from.actuator_ctrlrange.Row(world);
  return model;
}

ROLLOUTS_HD inline BasicDataView<float> DataOf(const TaskLaunch& launch, std::int64_t world) {
  const TaskDataArrays& from = launch.data;
  BasicDataView<float> data;
  data.qpos = from.qpos.Row(world);
  data.qvel = from.qvel.Row(world);
  data.act = from.act.Row(world);
  data.ctrl = from.ctrl.Row(world);
  data.xpos = from.xpos.Row(world);
  data.xquat = from.xquat.Row(world);
  data.xmat = from.xmat.Row(world);
  data.xipos = from.xipos.Row(world);
  data.geom_xpos = from.geom_xpos.Row(world);
  data.geom_xmat = from.geom_xmat.Row(world);
  data.site_xpos = from.site_xpos.Row(world);
  data.site_xmat = from.site_xmat.Row(world);
  data.sensordata = from.sensordata.Row(world);
  data.subtree_com = from.subtree_com.Row(world);
  data.cinert = from.cinert.Row(world);
  data.cvel = from.cvel.Row(world);
  data.cfrc_ext = from.cfrc_ext.Row(world);
  data.qfrc_actuator = from.qfrc_actuator.Row(world);
  data.qfrc_constraint = from.qfrc_constraint.Row(world);
  data.ten_length = from.ten_length.Row(world);
  data.ten_velocity = from.ten_velocity.Row(world);
  return data;
}

// Runs `run(world)` in a thread for each world that the launch is for.
template <typename Run>
ROLLOUTS_HD void EachMarked(const Block& block, const TaskLaunch& launch, const Run& run) {
  const std::int64_t first = block.index() * block.num_threads();
  block.EachThread([&](std::int32_t thread) {
    const std::int64_t world = first + thread;
    if (world < launch.num_envs && launch.marked[world]) run(world);
  });
}

// The stream of a world's episode, after the numbers already taken. `begins`: resets the clock for
// the next episode, and returns that episode's stream.
ROLLOUTS_HD inline Rng StreamOf(const TaskLaunch& launch, std::int64_t world, bool begins) {
  const ClockRef clock(launch.clock, world);
  if (begins) {
    ++clock.next_episode;
    clock.elapsed_steps = 0;
    clock.episode_return = 0;
    clock.ended = launch.broken[world] = 0;
  }
  // a number of 64 bits takes two words
  const auto words = 2 * static_cast<std::uint32_t>(launch.draws[world]);
  return Rng(clock.seed, clock.stream_id, clock.next_episode - 1, words);
}

// Positions, velocities and activations (nq + nv + na) of a world's start.
ROLLOUTS_HD inline double* StartOf(const TaskLaunch& launch, std::int64_t world) {
  const TaskModelArrays& model = launch.model;
  return launch.starts + (model.nq + model.nv + model.na) * world;
}
// Sets a start to the model's own positions, at rest.
ROLLOUTS_HD inline void ClearStart(const TaskLaunch& launch, std::int64_t world) {
  const TaskModelArrays& model = launch.model;
  double* const start = StartOf(launch, world);
  const double* const from = model.start_qpos + model.start_qpos_stride * world;
  for (std::int32_t i = 0; i < model.nq; ++i) start[i] = from[i];
  for (std::int32_t i = model.nq; i < model.nq + model.nv + model.na; ++i) start[i] = 0;
}
// Writes a start into mujoco_warp's arrays, in 32 bits.
ROLLOUTS_HD inline void PutStart(const TaskLaunch& launch, std::int64_t world) {
  const TaskModelArrays& model = launch.model;
  const double* start = StartOf(launch, world);
  float* const to[] = {launch.data.qpos.Row(world), launch.data.qvel.Row(world),
                       launch.data.act.Row(world)};
  const std::int32_t counts[] = {model.nq, model.nv, model.na};
  for (std::int32_t array = 0; array < 3; ++array) {
    for (std::int32_t i = 0; i < counts[array]; ++i) to[array][i] = static_cast<float>(*start++);
  }
}

// Writes zeros where the world is broken; returns whether it is.
ROLLOUTS_HD inline bool ShowsNothing(const TaskLaunch& launch, std::int64_t world, float* row) {
  if (!launch.broken[world]) return false;
  for (std::int32_t i = 0; i < launch.obs_size; ++i) row[i] = 0;
  return true;
}

template <typename Task>
class TaskKernel {
  using Config = typename Task::Config;

 public:
  ROLLOUTS_HD static void Run(const Block& block, const TaskLaunch& launch) {
    EachMarked(block, launch, [&](std::int64_t world) { RunWorld(launch, world); });
  }

 private:
  ROLLOUTS_HD static void RunWorld(const TaskLaunch& launch, std::int64_t world) {
    const BasicModelView<float> model = ModelOf(launch, world);
    const BasicDataView<float> data = DataOf(launch, world);
    const BasicSimulation<float> sim{model, data, launch.timestep[world] * launch.frame_skip};
    const Config& config = static_cast<const Config*>(launch.configs)[world];
    Task task = *static_cast<const Task*>(launch.task);
    double* const before = launch.results.before + 2 * world;
    for (std::int32_t i = 0; i < 2; ++i) task.before[i] = before[i];
    switch (launch.phase) {
      case TaskPhase::kStart: return Start(launch, world, task, config, model);
      case TaskPhase::kObserve: return Observe(launch, world, task, config, sim);
      default: Look(launch, world, task, config, sim);
    }
    for (std::int32_t i = 0; i < 2; ++i) before[i] = task.before[i];
  }

  ROLLOUTS_HD static void Start(const TaskLaunch& launch, std::int64_t world, const Task& task,
                                const Config& config, const BasicModelView<float>& model) {
    Rng rng = StreamOf(launch, world, /*begins=*/true);
    ClearStart(launch, world);
    double* const qpos = StartOf(launch, world);
    task.DrawStart(config, model, rng, qpos, qpos + model.nq);
    PutStart(launch, world);
  }

  // Computes the results after a step, or at an episode's start.
  ROLLOUTS_HD static void Look(const TaskLaunch& launch, std::int64_t world, Task& task,
                               const Config& config, const BasicSimulation<float>& sim) {
    float* const row = launch.results.infos + launch.num_infos * world;
    ObservationWriter infos(reinterpret_cast<std::uint8_t*>(row), /*single=*/true);
    if (launch.phase == TaskPhase::kReset) {
      task.AfterReset(config, sim, infos);
      // a reset reports only the first infos
      for (std::int32_t i = infos.size(); i < launch.num_infos; ++i) row[i] = 0;
      return;
    }
    const StepResult result = task.AfterStep(config, sim, sim.data.ctrl, infos);
    launch.results.reward[world] = static_cast<float>(result.reward);
    launch.results.terminated[world] = result.terminated;
  }

  ROLLOUTS_HD static void Observe(const TaskLaunch& launch, std::int64_t world, const Task& task,
                                  const Config& config, const BasicSimulation<float>& sim) {
    float* const row = launch.results.obs + launch.obs_size * world;
    if (ShowsNothing(launch, world, row)) return;
    ObservationWriter obs(reinterpret_cast<std::uint8_t*>(row), /*single=*/true);
    task.Observe(config, sim, obs);
  }
};

}  // namespace rollouts

// The entry point that loaders look up by name, for a TaskKernel or a SuiteKernel.
#if defined(__CUDACC_RTC__)
#define ROLLOUTS_TASK_KERNEL(KERNEL)                                                              \
  extern "C" __global__ void __launch_bounds__(256) rollouts_task(rollouts::TaskLaunch launch) { \
    KERNEL::Run(rollouts::Block(), launch);                                 \
  }
#else
#define ROLLOUTS_TASK_KERNEL(KERNEL)                                                             \
  extern "C" void rollouts_task(const rollouts::TaskLaunch* launch, std::int64_t num_blocks,   \
                                std::int32_t num_threads, std::int32_t backwards) {            \
    for (std::int64_t i = 0; i < num_blocks; ++i) {                                            \
      const rollouts::Block block(backwards ? num_blocks - 1 - i : i, num_threads, backwards); \
      KERNEL::Run(block, *launch);                                         \
    }                                                                                          \
  }
extern "C" __attribute__((used)) inline std::int64_t rollouts_launch_bytes() {
  return sizeof(rollouts::TaskLaunch);
}
#endif
