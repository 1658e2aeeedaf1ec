// SPDX-License-Identifier: Apache-2.0
// Worlds of agents on a GPU, or on the host in its place: a team of threads for each world, among
// which its agents are divided, and one launch for a whole step (core/step.h).
#pragma once

#include "rollouts/core/world_layout.h"
#include "rollouts/device/team_world.h"

#if !defined(__CUDACC_RTC__)
#include <cstring>
#include <vector>
#endif

namespace rollouts {

template <typename Env, typename ObsTo, typename Team, typename Shape = AnyShape>
class WorldKernel {
  static_assert(sizeof(TeamState<Env>) <= kTeamStateBytes + sizeof(typename Env::Agents));
  using Config = typename Env::Config;
  using World = typename Env::World;
  using Ref = TeamWorld<Env, ObsTo, Team, Shape>;
  struct alignas(16) Chunk {
    std::uint8_t bytes[16];
  };

 public:
  // Tells if there is a world of this number and the host knows its layout; reports a fault where
  // the layouts differ.
  ROLLOUTS_HD static bool Has(const WorldLaunch& launch, std::int64_t env) {
    if (env >= launch.num_envs) return false;
    const WorldLayout<Env> layout(ConfigOf(launch, env), Shape::NumAgents(launch));
    if (layout.bytes() == Shape::WorldBytes(launch)) return true;
    Report(launch.fault, launch.clock.env_id[env], Fault::kLayout);
    return false;
  }

  // Runs one thread's world, on a copy. All threads with a world call this.
  ROLLOUTS_HD static void RunAlone(const Team& solo, const WorldLaunch& launch) {
    constexpr std::int64_t kChunks = Shape::kWorldBytes / 16;
    const std::int64_t env = solo.index();
    Chunk world[kChunks];
    Chunk* const stored = reinterpret_cast<Chunk*>(launch.worlds) + env;
    for (std::int64_t i = 0; i < kChunks; ++i) world[i] = stored[i * launch.num_envs];
    alignas(16) std::uint8_t actions[Shape::kActionBytes];
    TeamState<Env> state;
    Begin(state, launch, env, reinterpret_cast<std::uint8_t*>(world));
    RunSteps(solo, launch, env, state, actions);
    for (std::int64_t i = 0; i < kChunks; ++i) stored[i * launch.num_envs] = world[i];
  }

  // Runs one team's world.
  ROLLOUTS_HD static void Run(const Team& team, const WorldLaunch& launch) {
    const std::int64_t env = team.index();
    if (!Has(launch, env)) return;
    std::uint8_t* const stored = launch.worlds + env * launch.world_bytes;
    std::uint8_t* const memory = launch.memory.world ? team.memory() + launch.memory.world : stored;
    if (launch.memory.world) Copy(team, stored, memory, launch.world_bytes);
    auto& state = *reinterpret_cast<TeamState<Env>*>(team.memory());
    team.Once([&] { Begin(state, launch, env, memory); });
    std::uint8_t* const actions =
        launch.memory.actions ? team.memory() + launch.memory.actions
                              : launch.action_memory + env * WorldActionBytes(launch);
    RunSteps(team, launch, env, state, actions);
    if (launch.memory.world) Copy(team, memory, stored, launch.world_bytes);
  }

 private:
  ROLLOUTS_HD static const Config& ConfigOf(const WorldLaunch& launch, std::int64_t env) {
    return static_cast<const Config*>(launch.configs)[env * launch.config_stride];
  }

  // Sets all values of a state that stay the same from step to step; its world is in `memory`.
  ROLLOUTS_HD static void Begin(TeamState<Env>& state, const WorldLaunch& launch, std::int64_t env,
                                std::uint8_t* memory) {
    state.config = &ConfigOf(launch, env);
    state.world = reinterpret_cast<World*>(memory);
    const WorldLayout<Env> layout(*state.config, Shape::NumAgents(launch));
    layout.Place(*state.config, memory, state.status, state.agents);
    state.tables = launch.tables + env * launch.table_stride;
    state.num_agents = Shape::NumAgents(launch);
    state.elapsed_steps = launch.clock.elapsed_steps[env];
    state.max_episode_steps = launch.rules.max_episode_steps;
  }

  ROLLOUTS_HD static void RunSteps(const Team& team, const WorldLaunch& launch, std::int64_t env,
                                   TeamState<Env>& state, std::uint8_t* actions) {
    ClockRef at(launch.clock, env);
    EpisodeClock clock{at.seed,           at.env_id,         at.next_episode, at.draws,
                       at.elapsed_steps,  at.episode_return, at.ended != 0,   at.stream_id};
    // waits until all threads have read the stored clock, before one of them writes it
    team.Once([] {});
    Ref ref(team, launch, clock, state);
    for (std::int32_t k = 0; k < launch.num_steps; ++k) {
      RunStep(team, launch, env, k, ref, clock, actions);
    }
    team.Once([&] {
      at.next_episode = clock.next_episode;
      at.draws = clock.draws;
      at.elapsed_steps = clock.elapsed_steps;
      at.episode_return = clock.episode_return;
      at.ended = clock.ended;
    });
  }

  ROLLOUTS_HD static void Copy(const Team& team, const std::uint8_t* from, std::uint8_t* to,
                               std::int64_t bytes) {
    team.ForEach(bytes / 16, [&](std::int32_t i) {
      reinterpret_cast<Chunk*>(to)[i] = reinterpret_cast<const Chunk*>(from)[i];
    });
  }

  ROLLOUTS_HD static void RunStep(const Team& team, const WorldLaunch& launch, std::int64_t env,
                                  std::int32_t k, Ref& ref, EpisodeClock& clock,
                                  std::uint8_t* actions) {
    auto command = static_cast<Command>(launch.commands ? launch.commands[env] : launch.command);
    if (command == Command::kStep && clock.ended &&
        launch.rules.autoreset == AutoresetMode::kDisabled) {
      // the world stays unchanged, and a fault is reported
      Report(launch.fault, clock.env_id, Fault::kEnded);
      command = Command::kObserve;
    }
    const bool is_step = IsStep(command, clock);
    // a step that begins an episode reads its actions too, which have no effect
    if (command == Command::kStep) TakeActions(team, launch, env, k, clock, actions);
    const bool ended_before = clock.ended;
    bool truncated = false;
    const TeamRows<Team> rows{team, launch.rows,
                              launch.record_steps != 0 || k == launch.num_steps - 1, truncated};
    const std::int64_t row = launch.record_steps != 0 ? k * launch.num_envs + env : env;
    ref.BeginStep();
    RunCommand(
        command, launch.rules, ref, clock, actions,
        [&] { return BasicRowRef<TeamRows<Team>>{rows, row}; },
        [&](const BasicRowRef<TeamRows<Team>>& out) {
          if (is_step && team.IsFirst()) CountEpisode(launch.totals, env, clock, ended_before);
          ref.WriteAgents(out);
        });
  }

  ROLLOUTS_HD static std::int64_t WorldActionBytes(const WorldLaunch& launch) {
    const DeviceGroup& last = launch.groups[launch.num_groups - 1];
    return last.action_offset + std::int64_t{4} * last.num_agents * last.action_size;
  }

  ROLLOUTS_HD static void TakeActions(const Team& team, const WorldLaunch& launch,
                                      std::int64_t env, std::int32_t k, const EpisodeClock& clock,
                                      std::uint8_t* actions) {
    const bool is_sequence = launch.action_source == ActionSource::kSequence;
    Shape::EachGroup(launch, [&](const GroupFacts& group) {
      const std::int32_t g = group.index, count = group.num_agents * group.action_size;
      const std::int64_t row = (is_sequence ? k * launch.num_envs + env : env) * count;
      const std::int64_t taken = (k * launch.num_envs + env) * count;
      const bool is_real = launch.groups[g].has_real_actions();
      team.ForEach(count, [&](std::int32_t i) {
        if (is_real) {
          const float value = TakeElement<float>(launch, group, row, i, k, clock);
          reinterpret_cast<float*>(actions + group.action_offset)[i] = value;
          if (launch.taken[g]) static_cast<float*>(launch.taken[g])[taken + i] = value;
        } else {
          const auto value = TakeElement<std::int32_t>(launch, group, row, i, k, clock);
          reinterpret_cast<std::int32_t*>(actions + group.action_offset)[i] = value;
          if (launch.taken[g]) static_cast<std::int32_t*>(launch.taken[g])[taken + i] = value;
        }
      });
    });
  }

  // An element of an agent's action, drawn or given by the caller. Where it is outside a discrete
  // space, or not finite in a Box, 0 is taken and a fault is reported.
  template <typename Action>
  ROLLOUTS_HD static Action TakeElement(const WorldLaunch& launch, const GroupFacts& of,
                                        std::int64_t row, std::int32_t i, std::int32_t k,
                                        const EpisodeClock& clock) {
    const std::int32_t g = of.index, element = i % of.action_size;
    const DeviceGroup& group = launch.groups[g];
    if (launch.action_source == ActionSource::kRandom) {
      // each element owns as many words of the stream as it has bytes, 4, of which most draws use
      // fewer
      const auto step = static_cast<std::uint32_t>(launch.action_step + k);
      const auto first = static_cast<std::uint32_t>(of.action_offset + 4 * std::int64_t{i});
      Rng rng(launch.action_seed, clock.env_id, step, first);
      return RandomAction<Action>(group.action, element, rng);
    }
    if constexpr (kSameType<Action, float>) {
      const float value = static_cast<const float*>(launch.actions[g])[row + i];
      if (value - value == 0) return value;
    } else {
      const std::int64_t value = launch.action_bytes[g] == 8
                                     ? static_cast<const std::int64_t*>(launch.actions[g])[row + i]
                                     : static_cast<const std::int32_t*>(launch.actions[g])[row + i];
      const std::int64_t end =
          group.action.n > 0
              ? group.action.n
              : static_cast<std::int64_t>(
                    group.action.high[group.action.elementwise ? element : 0]) + 1;
      if (value >= 0 && value < end) return static_cast<Action>(value);
    }
    Report(launch.fault, clock.env_id, Fault::kNoSuchAction);
    return 0;
  }
};

}  // namespace rollouts

// The entry point that loaders look up by name, for one step and for many. `OBS` is float,
// rollouts::Float16 and so on; `...` is an AloneShape, in ROLLOUTS_ALONE_KERNEL. The launch stays
// in CUDA's parameter memory: functions get its address, not a copy.
#if defined(__CUDACC_RTC__)
#define ROLLOUTS_WORLD_KERNEL(ENV, OBS)                                          \
  extern "C" __global__ void __launch_bounds__(256)                              \
      rollouts_step(const __grid_constant__ rollouts::WorldLaunch launch) {      \
    const rollouts::Team team(launch.team_size, launch.memory.bytes);            \
    rollouts::WorldKernel<ENV, OBS, rollouts::Team>::Run(team, launch);          \
  }
#define ROLLOUTS_ALONE_KERNEL(ENV, OBS, ...)                                                  \
  extern "C" __global__ void __launch_bounds__(64)                                            \
      rollouts_step(const __grid_constant__ rollouts::WorldLaunch launch) {                   \
    using Kernel = rollouts::WorldKernel<ENV, OBS, rollouts::Solo, __VA_ARGS__>;              \
    const rollouts::Solo solo(launch.num_envs, launch.memory.bytes,                           \
                              [&](std::int64_t env) { return Kernel::Has(launch, env); });    \
    if (solo.TakesPart()) Kernel::RunAlone(solo, launch);                                     \
  }
#else
// Fills the memory with a pattern before each team runs, so that reads of unwritten memory are
// noticed.
#define ROLLOUTS_WORLD_KERNEL(ENV, OBS)                                                           \
  extern "C" void rollouts_step(const rollouts::WorldLaunch* launch, std::int64_t num_blocks,     \
                                std::int32_t num_threads, std::int32_t backwards) {               \
    const auto bytes = static_cast<std::size_t>(launch->memory.bytes);                            \
    std::vector<std::max_align_t> memory(bytes / sizeof(std::max_align_t) + 1);                   \
    auto* const first = reinterpret_cast<std::uint8_t*>(memory.data());                           \
    const std::int64_t num_teams = num_blocks * (num_threads / launch->team_size);                \
    for (std::int64_t i = 0; i < num_teams; ++i) {                                                \
      std::memset(first, 0xA5, bytes);                                                            \
      const rollouts::Team team(backwards ? num_teams - 1 - i : i, first, backwards);             \
      rollouts::WorldKernel<ENV, OBS, rollouts::Team>::Run(team, *launch);                        \
    }                                                                                             \
  }                                                                                               \
  ROLLOUTS_WORLD_LAUNCH_BYTES
#define ROLLOUTS_ALONE_KERNEL(ENV, OBS, ...)                                                      \
  extern "C" void rollouts_step(const rollouts::WorldLaunch* launch, std::int64_t num_blocks,     \
                                std::int32_t num_threads, std::int32_t backwards) {               \
    using Kernel = rollouts::WorldKernel<ENV, OBS, rollouts::Solo, __VA_ARGS__>;                  \
    const auto bytes = static_cast<std::size_t>(launch->memory.bytes);                            \
    std::vector<std::max_align_t> memory(bytes / sizeof(std::max_align_t) + 1);                   \
    auto* const slot = reinterpret_cast<std::uint8_t*>(memory.data());                            \
    const std::int64_t count = num_blocks * num_threads;                                          \
    for (std::int64_t i = 0; i < count; ++i) {                                                    \
      std::memset(slot, 0xA5, bytes);                                                             \
      const rollouts::Solo solo(backwards ? count - 1 - i : i, slot, backwards);                  \
      if (Kernel::Has(*launch, solo.index())) Kernel::RunAlone(solo, *launch);                    \
    }                                                                                             \
  }                                                                                               \
  ROLLOUTS_WORLD_LAUNCH_BYTES
#define ROLLOUTS_WORLD_LAUNCH_BYTES                                                               \
  extern "C" __attribute__((used)) inline std::int64_t rollouts_launch_bytes() {                  \
    return sizeof(rollouts::WorldLaunch);                                                         \
  }
#endif
