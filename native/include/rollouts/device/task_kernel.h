// SPDX-License-Identifier: Apache-2.0
// MuJoCo's tasks over the arrays of mujoco_warp, on a GPU or on the host in its place: a thread for
// each world. A task is what envs/mujoco/task.h says; the clock and the rows of a step are of
// rollouts/envs/physics/kernels/episodes.py.
#pragma once

#include "rollouts/core/env.h"
#include "rollouts/device/grid.h"
#include "rollouts/device/launch.h"
#include "rollouts/engines/mujoco_views.h"
#include "rollouts/engines/observation_writer.h"

namespace rollouts {

enum class TaskPhase : std::int32_t {
  kStart,    // positions and velocities of worlds that begin, and their clocks
  kReset,    // the first infos
  kStep,     // reward, end and infos
  kObserve,  // observations
};

// Arrays over N worlds, a row for each, of numbers as mujoco_warp has them; the model's have one row
// for all where their stride is 0.
struct TaskModelArrays {
  std::int32_t nq, nv, nu, nbody, nsite, ntendon;
  const double* start_qpos;  // (nq) what starts are drawn around, in 64 bits
  const float* qpos0;        // (nq)
  const float* body_mass;    // (nbody)
  std::int64_t start_qpos_stride, qpos0_stride, body_mass_stride;
};
struct TaskDataArrays {
  float* qpos;
  float* qvel;
  const float* ctrl;
  const float* xpos;
  const float* xipos;
  const float* site_xpos;
  const float* cinert;
  const float* cvel;
  const float* cfrc_ext;
  const float* qfrc_actuator;
  const float* qfrc_constraint;
  const float* ten_length;
  const float* ten_velocity;
};
struct TaskResults {
  double* before;  // (N, 2)
  float* reward;
  std::uint8_t* terminated;
  float* infos;  // (N, num_infos)
  float* obs;    // (N, obs_size)
};

// A launch. The same bytes on host and device; rollouts/envs/kernel/task_launch.py writes them.
struct TaskLaunch {
  std::int64_t num_envs;
  const std::uint8_t* marked;  // (N) worlds that it is about
  const void* task;            // as the host has made it of the model's names
  const void* configs;         // (N)
  const double* timestep;      // (N) seconds of a substep
  double* starts;              // (N, nq + nv) for positions and velocities while they are drawn
  TaskModelArrays model;
  TaskDataArrays data;
  ClockColumns clock;
  const std::int32_t* draws;  // (N) numbers of 64 bits that an episode takes of its stream before
  std::uint8_t* broken;       // (N) what a world shows are zeros
  TaskResults results;
  TaskPhase phase;
  std::int32_t frame_skip;
  std::int32_t num_infos;
  std::int32_t obs_size;
};

template <typename Task>
class TaskKernel {
  using Config = typename Task::Config;

 public:
  ROLLOUTS_HD static void Run(const Block& block, const TaskLaunch& launch) {
    const std::int64_t first = block.index() * block.num_threads();
    block.EachThread([&](std::int32_t thread) {
      const std::int64_t world = first + thread;
      if (world < launch.num_envs && launch.marked[world]) RunWorld(launch, world);
    });
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
    const ClockRef clock(launch.clock, world);
    const std::uint32_t episode = clock.next_episode++;
    clock.elapsed_steps = 0;
    clock.episode_return = 0;
    clock.ended = launch.broken[world] = 0;
    // a number of 64 bits takes two words
    const auto words = 2 * static_cast<std::uint32_t>(launch.draws[world]);
    Rng rng(clock.seed, clock.stream_id, episode, words);
    double* const qpos = launch.starts + (model.nq + model.nv) * world;
    double* const qvel = qpos + model.nq;
    const double* const from = launch.model.start_qpos + launch.model.start_qpos_stride * world;
    for (std::int32_t i = 0; i < model.nq; ++i) qpos[i] = from[i];
    for (std::int32_t i = 0; i < model.nv; ++i) qvel[i] = 0;
    task.DrawStart(config, model, rng, qpos, qvel);
    float* const to_qpos = launch.data.qpos + model.nq * world;
    float* const to_qvel = launch.data.qvel + model.nv * world;
    for (std::int32_t i = 0; i < model.nq; ++i) to_qpos[i] = static_cast<float>(qpos[i]);
    for (std::int32_t i = 0; i < model.nv; ++i) to_qvel[i] = static_cast<float>(qvel[i]);
  }

  // After a step, or at an episode's start.
  ROLLOUTS_HD static void Look(const TaskLaunch& launch, std::int64_t world, Task& task,
                               const Config& config, const BasicSimulation<float>& sim) {
    float* const row = launch.results.infos + launch.num_infos * world;
    ObservationWriter infos(reinterpret_cast<std::uint8_t*>(row), /*single=*/true);
    if (launch.phase == TaskPhase::kReset) {
      task.AfterReset(config, sim, infos);
      // a reset reports the first of them
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
    if (launch.broken[world]) {
      for (std::int32_t i = 0; i < launch.obs_size; ++i) row[i] = 0;
      return;
    }
    ObservationWriter obs(reinterpret_cast<std::uint8_t*>(row), /*single=*/true);
    task.Observe(config, sim, obs);
  }

  ROLLOUTS_HD static BasicModelView<float> ModelOf(const TaskLaunch& launch, std::int64_t world) {
    const TaskModelArrays& from = launch.model;
    BasicModelView<float> model;
    model.nq = from.nq;
    model.nv = from.nv;
    model.nu = from.nu;
    model.nbody = from.nbody;
    model.nsite = from.nsite;
    model.ntendon = from.ntendon;
    model.timestep = launch.timestep[world];
    model.qpos0 = from.qpos0 + from.qpos0_stride * world;
    model.body_mass = from.body_mass + from.body_mass_stride * world;
    return model;
  }

  ROLLOUTS_HD static BasicDataView<float> DataOf(const TaskLaunch& launch, std::int64_t world) {
    const TaskModelArrays& model = launch.model;
    const TaskDataArrays& from = launch.data;
    BasicDataView<float> data;
    data.qpos = from.qpos + model.nq * world;
    data.qvel = from.qvel + model.nv * world;
    data.ctrl = from.ctrl + model.nu * world;
    data.xpos = from.xpos + 3 * model.nbody * world;
    data.xipos = from.xipos + 3 * model.nbody * world;
    data.site_xpos = from.site_xpos + 3 * model.nsite * world;
    data.cinert = from.cinert + 10 * model.nbody * world;
    data.cvel = from.cvel + 6 * model.nbody * world;
    data.cfrc_ext = from.cfrc_ext + 6 * model.nbody * world;
    data.qfrc_actuator = from.qfrc_actuator + model.nv * world;
    data.qfrc_constraint = from.qfrc_constraint + model.nv * world;
    data.ten_length = from.ten_length + model.ntendon * world;
    data.ten_velocity = from.ten_velocity + model.ntendon * world;
    return data;
  }
};

}  // namespace rollouts

// The entry that loaders look for.
#if defined(__CUDACC_RTC__)
#define ROLLOUTS_TASK_KERNEL(TASK)                                                              \
  extern "C" __global__ void __launch_bounds__(256) rollouts_task(rollouts::TaskLaunch launch) { \
    rollouts::TaskKernel<TASK>::Run(rollouts::Block(), launch);                                 \
  }
#else
#define ROLLOUTS_TASK_KERNEL(TASK)                                                             \
  extern "C" void rollouts_task(const rollouts::TaskLaunch* launch, std::int64_t num_blocks,   \
                                std::int32_t num_threads, std::int32_t backwards) {            \
    for (std::int64_t i = 0; i < num_blocks; ++i) {                                            \
      const rollouts::Block block(backwards ? num_blocks - 1 - i : i, num_threads, backwards); \
      rollouts::TaskKernel<TASK>::Run(block, *launch);                                         \
    }                                                                                          \
  }
extern "C" __attribute__((used)) inline std::int64_t rollouts_launch_bytes() {
  return sizeof(rollouts::TaskLaunch);
}
#endif
