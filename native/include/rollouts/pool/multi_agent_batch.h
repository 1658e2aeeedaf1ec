// SPDX-License-Identifier: Apache-2.0
// Multi-agent environments of one type in a pool: a world each, in memory of its own.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "rollouts/core/world_layout.h"
#include "rollouts/pool/env_batch.h"
#include "rollouts/pool/run_or_fail.h"
#include "rollouts/pool/spec_difference.h"
#include "rollouts/support/page_memory.h"
#include "rollouts/support/world_arrays.h"

namespace rollouts {

// The loops over a world's agents, compiled for some instruction set.
template <typename Env>
struct AgentKernels {
  void (*step)(const WorldRef<Env>&) = AgentLoops<Env>::template Phases<0>;
  void (*observe)(const WorldRef<Env>&, std::int32_t first, std::int32_t count,
                  typename Env::Obs* obs, std::int64_t size) = AgentLoops<Env>::Observe;
};

// Throws SpecError where an environment differs from the first one of its pool.
inline void CheckSpec(const EnvSpec& first, const EnvSpec& other) {
  const std::string difference = SpecDifference(first, other);
  if (!difference.empty()) {
    throw SpecError("the environments of a pool must have equal spaces; these options change the " +
                    difference);
  }
}

// The numbers derived from the options, if the environment has such tables.
template <typename Env>
std::vector<float> TablesOf(const typename Env::Config& config) {
  std::vector<float> tables;
  if constexpr (HasTables<Env>) {
    tables.resize(static_cast<std::size_t>(Env::NumTables(config)));
    Env::FillTables(config, tables.data());
  }
  return tables;
}

// Copies all arrays of a world, whose memory begins with the World.
template <typename Env>
WorldArrays ReadWorldArrays(const WorldLayout<Env>& layout, const typename Env::Config& config,
                            std::uint8_t* memory) {
  WorldReader reader;
  if constexpr (TellsWorld<Env>) {
    auto read = [&](const char* name, const auto& value) { reader.Shared(name, value); };
    Env::VisitWorld(*reinterpret_cast<typename Env::World*>(memory), read);
  }
  AgentStatus status;
  typename Env::Agents agents;
  layout.Place(config, memory, status, agents);
  auto read = [&](const char* name, const auto* array, std::int32_t count = 1) {
    reader.Agents(name, array, layout.num_agents(), count);
  };
  VisitStatus(status, read);
  Env::VisitFields(config, agents, read);
  return reader.Take();
}

// Worlds of environments with these options. Throws SpecError where their worlds differ in size.
template <MultiAgentEnvironment Env>
WorldFacts DescribeWorlds(const std::vector<typename Env::Config>& configs) {
  const EnvSpec spec = Env::MakeSpec(configs[0]);
  WorldFacts facts{.agents_bytes = sizeof(typename Env::Agents), .tables = {}};
  std::size_t num_tables = 0;
  for (const typename Env::Config& config : configs) {
    CheckSpec(spec, Env::MakeSpec(config));
    const std::int64_t bytes = WorldLayout<Env>(config, NumAgents(spec)).bytes();
    const std::vector<float> tables = TablesOf<Env>(config);
    if (&config != configs.data() && (bytes != facts.world_bytes || tables.size() != num_tables)) {
      throw SpecError("the environments of a GPU's pool must have states of one size; these "
                      "options change it");
    }
    facts.world_bytes = bytes;
    num_tables = tables.size();
    facts.tables.insert(facts.tables.end(), tables.begin(), tables.end());
  }
  return facts;
}

// One world through the interface of core/step.h.
template <typename Env>
class WorldEnv {
 public:
  using Obs = typename Env::Obs;
  using Action = std::uint8_t;

  WorldEnv(const WorldRef<Env>& world, const EnvSpec& spec, const AgentKernels<Env>& kernels,
           const EpisodeClock& clock, std::int64_t state_bytes)
      : world_(world), spec_(spec), kernels_(kernels), clock_(clock), state_bytes_(state_bytes) {}

  void Reset(Rng& rng, bool /*forced*/) {
    // the world lies at the start of its memory
    std::memset(static_cast<void*>(&world_.world), 0, static_cast<std::size_t>(state_bytes_));
    std::fill_n(world_.status.active, world_.num_agents, std::uint8_t{1});
    const WorldRef<Env> world = At(0);
    Env::Reset(world, rng);
    AgentLoops<Env>::ResetPhases(world);
  }

  StepResult Step(const Action* actions, Rng& rng) {
    WorldRef<Env> world = At(clock_.elapsed_steps + 1);
    for (std::int32_t g = 0; g < spec_.num_groups; ++g) {
      world.actions.of_group[g] = actions;
      actions += ActionBytes(spec_.groups[g].action) * spec_.groups[g].num_agents;
    }
    BeginAgents(world.status, world.num_agents);
    kernels_.step(world);
    const bool terminated = Env::EndStep(world, rng);
    const StepResult result = EndAgents(world.status, world.num_agents, terminated);
    if (!std::isfinite(result.reward)) CheckFinite(world);
    stepped_ = true;
    return result;
  }

  void ObserveRow(const RowRef& out, bool final) const {
    const WorldRef<Env> world = At(clock_.elapsed_steps);
    std::int32_t first = 0;
    for (std::int32_t g = 0; g < out.view.num_groups; ++g) {
      const GroupView& group = out.view.groups[g];
      const std::int64_t row_bytes = group.obs_bytes * group.num_agents;
      auto* obs = reinterpret_cast<Obs*>((final ? group.final_obs : group.obs) + out.row * row_bytes);
      kernels_.observe(world, first, group.num_agents, obs,
                       group.obs_bytes / static_cast<std::int64_t>(sizeof(Obs)));
      first += group.num_agents;
    }
  }

  // Writes rewards and ends of each agent; to be called after the row's outcome is written, and
  // before an autoreset.
  void WriteAgents(const RowRef& out) const {
    const std::uint8_t truncated = out.view.truncated[out.row];
    std::int32_t agent = 0;
    for (std::int32_t g = 0; g < out.view.num_groups; ++g) {
      const GroupView& group = out.view.groups[g];
      const std::int64_t first = out.row * group.num_agents;
      for (std::int64_t i = first; i < first + group.num_agents; ++i, ++agent) {
        const AgentOutcome one = OutcomeOf(world_.status, agent, stepped_, truncated);
        group.reward[i] = one.reward;
        group.terminated[i] = one.terminated;
        group.truncated[i] = one.truncated;
        group.active[i] = one.active;
        group.episode_return[i] = world_.status.episode_return[agent];
      }
    }
  }

  // Corrects a row of WriteFailure: agents that had left before are not truncated with the others.
  void WriteFailedAgents(const RowRef& out) const {
    const std::uint8_t* active = world_.status.active;
    for (std::int32_t g = 0; g < out.view.num_groups; ++g) {
      const GroupView& group = out.view.groups[g];
      std::copy_n(active, group.num_agents, group.active + out.row * group.num_agents);
      std::copy_n(active, group.num_agents, group.truncated + out.row * group.num_agents);
      active += group.num_agents;
    }
  }

 private:
  WorldRef<Env> At(std::int32_t elapsed_steps) const {
    WorldRef<Env> world = world_;
    world.elapsed_steps = elapsed_steps;
    return world;
  }

  // Throws for the first agent whose reward is not finite.
  void CheckFinite(const WorldRef<Env>& world) const {
    std::int32_t agent = 0;
    for (std::int32_t g = 0; g < spec_.num_groups; ++g) {
      for (std::int32_t i = 0; i < spec_.groups[g].num_agents; ++i, ++agent) {
        if (std::isfinite(world.status.reward[agent])) continue;
        throw std::runtime_error("the reward of agent " + std::string(spec_.groups[g].name) + "_" +
                                 std::to_string(i) + " is " +
                                 std::to_string(world.status.reward[agent]));
      }
    }
  }

  const WorldRef<Env>& world_;
  const EnvSpec& spec_;
  const AgentKernels<Env>& kernels_;
  const EpisodeClock& clock_;
  const std::int64_t state_bytes_;
  bool stepped_ = false;
};

template <MultiAgentEnvironment Env>
class MultiAgentBatch final : public EnvBatch {
  using Config = typename Env::Config;
  using World = typename Env::World;
  static_assert(std::is_trivially_copyable_v<World> && std::is_trivially_copyable_v<Config>);

 public:
  // `configs`: one for all environments, or one for each. Throws SpecError where their spaces differ.
  MultiAgentBatch(const std::vector<Config>& configs, std::int32_t num_envs,
                  AgentKernels<Env> kernels = {})
      : spec_(Env::MakeSpec(configs[0])),
        num_agents_(NumAgents(spec_)),
        kernels_(kernels),
        options_(MakeOptions(configs)),
        clocks_(static_cast<std::size_t>(num_envs)) {
    for (std::int32_t env = 0; env < num_envs; ++env) {
      of_env_.push_back(options_[options_.size() == 1 ? 0 : static_cast<std::size_t>(env)]);
      worlds_.emplace_back(static_cast<std::size_t>(of_env_.back()->layout.bytes()));
    }
  }

  const EnvSpec& spec() const override { return spec_; }
  EpisodeClock& clock(std::int32_t env) override { return clocks_[env]; }

  void Run(std::span<const std::int32_t> envs, const Work& work, RowSource& source) override {
    while (!envs.empty()) {
      const RowSource::Rows rows = source.Take(static_cast<std::int32_t>(envs.size()));
      for (std::int32_t i = 0; i < rows.count; ++i) {
        RunOne(envs[i], work, {rows.view, rows.first + i}, source);
      }
      envs = envs.subspan(rows.count);
      source.Finish(rows);
    }
  }

  std::span<std::uint8_t> StateBytes(std::int32_t env) override {
    return {worlds_[env].data(), static_cast<std::size_t>(of_env_[env]->layout.bytes())};
  }

  void SaveState(std::int32_t env, std::vector<std::uint8_t>& out) const override {
    const std::uint8_t* bytes = worlds_[env].data();
    out.insert(out.end(), bytes, bytes + of_env_[env]->layout.bytes());
  }

  void CheckState(std::int32_t env, std::span<const std::uint8_t> state) const override {
    const auto expected = static_cast<std::size_t>(of_env_[env]->layout.bytes());
    if (state.size() != expected) {
      throw SpecError("holds " + std::to_string(state.size()) + " bytes of an environment of " +
                      std::to_string(expected));
    }
    // copied to separate memory, which is aligned
    PageMemory copy(expected);
    std::memcpy(copy.data(), state.data(), expected);
    const WorldRef<Env> world = WorldAt(*of_env_[env], copy.data(), /*max_episode_steps=*/0);
    for (std::int32_t i = 0; i < num_agents_; ++i) {
      if (world.status.active[i] > 1 || world.status.terminated[i] > 1) throw SpecError(kNoSuchState);
    }
    if constexpr (requires { Env::CheckWorld(world); }) {
      if (const char* wrong = Env::CheckWorld(world)) throw SpecError(wrong);
    }
  }

  void LoadState(std::int32_t env, std::span<const std::uint8_t> state) override {
    std::memcpy(worlds_[env].data(), state.data(), state.size());
  }

  WorldArrays ReadWorld(std::int32_t env, bool first) const override {
    const Given& given = *of_env_[env];
    const EpisodeClock& clock = clocks_[env];
    const PageMemory& now = worlds_[env];
    PageMemory copy(static_cast<std::size_t>(given.layout.bytes()));
    std::memcpy(copy.data(), now.data(), static_cast<std::size_t>(given.layout.bytes()));
    if (first) {
      // resets the copy with the episode's own stream, which gives the start of the episode again
      Rng rng(clock.seed, clock.stream_id, clock.next_episode - 1);
      const WorldRef<Env> world = WorldAt(given, copy.data(), /*max_episode_steps=*/0);
      WorldEnv<Env>(world, spec_, kernels_, clock, given.layout.bytes()).Reset(rng, false);
    }
    WorldArrays arrays = ReadWorldArrays(given.layout, given.config, copy.data());
    WorldReader steps;
    steps.Shared("elapsed_steps", first ? 0 : clock.elapsed_steps);
    arrays.push_back(steps.Take().front());
    return arrays;
  }

  Options OptionsOf(std::int32_t env) const override {
    return ListOptions<Env>(of_env_[env]->config);
  }

  std::function<void()> Prepare(std::span<const std::int32_t> envs, const EnvChanges& changes,
                                std::int32_t first_row) override {
    if (!changes.model.empty()) throw SpecError(kNoModel);
    struct Next {
      std::int32_t env;
      std::shared_ptr<const Given> given;
      PageMemory world;
    };
    // shared, because a std::function is copied
    const auto prepared = std::make_shared<std::vector<Next>>();
    for (const std::int32_t env : envs) {
      auto given = MakeGiven(
          ReadConfig<Env>(changes.options, first_row + env, of_env_[env]->config));
      PageMemory world(static_cast<std::size_t>(given->layout.bytes()));
      prepared->push_back({env, std::move(given), std::move(world)});
    }
    return [this, prepared] {
      for (Next& next : *prepared) {
        of_env_[next.env] = std::move(next.given);
        worlds_[next.env] = std::move(next.world);
      }
    };
  }

 private:
  // Numbers derived from the options, of one environment or of all.
  struct Given {
    Config config;
    WorldLayout<Env> layout;
    std::vector<float> tables;
  };

  std::shared_ptr<const Given> MakeGiven(const Config& config) const {
    CheckSpec(spec_, Env::MakeSpec(config));
    return std::make_shared<Given>(
        Given{config, WorldLayout<Env>(config, num_agents_), TablesOf<Env>(config)});
  }

  std::vector<std::shared_ptr<const Given>> MakeOptions(const std::vector<Config>& configs) const {
    std::vector<std::shared_ptr<const Given>> all;
    for (const Config& config : configs) all.push_back(MakeGiven(config));
    return all;
  }

  WorldRef<Env> WorldAt(const Given& given, std::uint8_t* memory,
                        std::int32_t max_episode_steps) const {
    WorldRef<Env> world{given.config,          *reinterpret_cast<World*>(memory), {}, {}, {},
                        given.tables.data(),   num_agents_, 0,
                        max_episode_steps};
    given.layout.Place(given.config, memory, world.status, world.agents);
    return world;
  }

  void RunOne(std::int32_t env, const Work& work, const RowRef& out, RowSource& source) {
    const Given& given = *of_env_[env];
    const WorldRef<Env> world = WorldAt(given, worlds_[env].data(), work.rules.max_episode_steps);
    EpisodeClock& clock = clocks_[env];
    WorldEnv<Env> ref(world, spec_, kernels_, clock, given.layout.bytes());
    RunOrFail(
        env, work, ref, clock, source, [&] { return out; },
        [&](const RowRef& row) { ref.WriteAgents(row); },
        [&](const RowRef& row) { ref.WriteFailedAgents(row); });
  }

  const EnvSpec spec_;
  const std::int32_t num_agents_;
  const AgentKernels<Env> kernels_;
  const std::vector<std::shared_ptr<const Given>> options_;
  std::vector<std::shared_ptr<const Given>> of_env_;
  std::vector<PageMemory> worlds_;
  std::vector<EpisodeClock> clocks_;
};

}  // namespace rollouts
