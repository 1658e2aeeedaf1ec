// SPDX-License-Identifier: Apache-2.0
// Kernels of worlds with a thread for each thread of a team, as on a GPU: a sanitizer sees where one
// reads what another writes and nothing is waited for in between. What they compute is compared with
// the same kernels as loops.
#define ROLLOUTS_KERNEL
#define ROLLOUTS_REAL double

#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rollouts/device/world_kernels.h"
#include "rollouts/envs/mpe/simple_world_comm.h"
#include "rollouts/envs/multi_agent/tag_continuous.h"
#include "rollouts/envs/multi_agent/tag_grid_world.h"

namespace rollouts {
namespace {

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition);    \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (false)

// One of a team's threads, with the interface of Team.
class ThreadTeam {
 public:
  // `waits`: after a ForEach too.
  ThreadTeam(std::int64_t index, std::uint8_t* memory, std::int32_t rank, std::int32_t size,
             std::barrier<>& barrier, bool waits)
      : index_(index), memory_(memory), rank_(rank), size_(size), barrier_(barrier), waits_(waits) {}

  std::int64_t index() const { return index_; }
  std::uint8_t* memory() const { return memory_; }
  bool IsFirst() const { return rank_ == 0; }

  template <typename Run>
  void ForEach(std::int64_t count, Run&& run) const {
    for (auto i = rank_; i < static_cast<std::int32_t>(count); i += size_) run(i);
    if (waits_) barrier_.arrive_and_wait();
  }
  template <typename Run>
  void Once(Run&& run) const {
    if (rank_ == 0) run();
    barrier_.arrive_and_wait();
  }

 private:
  std::int64_t index_;
  std::uint8_t* memory_;
  std::int32_t rank_, size_;
  std::barrier<>& barrier_;
  bool waits_;
};

// One of a warp's threads, each of which has a world alone, with the interface of Solo.
class ThreadSolo {
 public:
  // `waits`: before rows are shared out.
  ThreadSolo(std::int64_t index, std::int32_t lanes, std::uint8_t* slots, std::int32_t slot_bytes,
             std::barrier<>& barrier, bool waits)
      : index_(index),
        lanes_(lanes),
        slots_(slots),
        slot_bytes_(slot_bytes),
        barrier_(barrier),
        waits_(waits) {}

  std::int64_t index() const { return index_; }
  bool IsFirst() const { return true; }
  std::int32_t lane() const { return static_cast<std::int32_t>(index_); }
  std::uint8_t* slot(std::int32_t lane) const { return slots_ + lane * slot_bytes_; }

  template <typename Run>
  void ForEach(std::int64_t count, Run&& run) const {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(count); ++i) run(i);
  }
  template <typename Run>
  void Once(Run&& run) const {
    run();
  }
  template <typename Run>
  void Share(std::int32_t count, Run&& run) const {
    if (waits_) barrier_.arrive_and_wait();
    ShareOut(lane(), lanes_, count, run);
    barrier_.arrive_and_wait();
  }

 private:
  std::int64_t index_;
  std::int32_t lanes_;
  std::uint8_t* slots_;
  std::int32_t slot_bytes_;
  std::barrier<>& barrier_;
  bool waits_;
};

// Everything that a launch over some worlds of one environment knows.
template <typename Env>
struct Worlds {
  static constexpr std::int32_t kWorlds = 3;
  static constexpr std::int32_t kRecorded = 4;

  Worlds(const typename Env::Config& config, std::int32_t limit, bool shared)
      : config(config), spec(Env::MakeSpec(config)) {
    const std::int32_t agents = NumAgents(spec);
    DescribeGroups(spec, groups);
    if constexpr (HasTables<Env>) {
      tables.resize(static_cast<std::size_t>(Env::NumTables(config)));
      Env::FillTables(config, tables.data());
    }
    launch.num_envs = kWorlds;
    launch.configs = &this->config;
    launch.tables = tables.data();
    launch.world_bytes = WorldLayout<Env>(config, agents).bytes();
    launch.worlds = Make<std::uint8_t>(kWorlds * launch.world_bytes);
    launch.groups = groups;
    launch.num_groups = spec.num_groups;
    launch.num_agents = agents;
    launch.clock = {Make<std::uint64_t>(kWorlds), Make<std::uint32_t>(kWorlds),
                    Make<std::uint32_t>(kWorlds), Make<std::uint32_t>(kWorlds),
                    Make<std::int32_t>(kWorlds),  Make<double>(kWorlds),
                    Make<std::uint8_t>(kWorlds),  Make<std::uint32_t>(kWorlds)};
    for (std::uint32_t i = 0; i < kWorlds; ++i) {
      launch.clock.env_id[i] = launch.clock.stream_id[i] = i;
    }
    launch.rules = {AutoresetMode::kSameStep, limit};
    launch.action_source = ActionSource::kRandom;
    const std::int64_t rows = kWorlds * kRecorded;
    launch.rows.ended = Make<std::uint8_t>(rows);
    launch.rows.episode_length = Make<std::int32_t>(rows);
    std::int64_t widest = 0;
    for (std::int32_t g = 0; g < spec.num_groups; ++g) {
      const std::int64_t all = rows * groups[g].num_agents;
      const auto obs_bytes = static_cast<std::int64_t>(sizeof(typename Env::Obs)) * groups[g].obs_size;
      launch.rows.groups[g] = {Make<std::uint8_t>(all * obs_bytes), Make<std::uint8_t>(all * obs_bytes),
                               Make<float>(all),        Make<std::uint8_t>(all),
                               Make<std::uint8_t>(all), Make<std::uint8_t>(all),
                               Make<double>(all)};
      launch.taken[g] = Make<std::int32_t>(all * groups[g].action_size);
      widest = obs_bytes > widest ? obs_bytes : widest;
    }
    launch.totals = {Make<std::int64_t>(kWorlds), Make<std::int64_t>(kWorlds),
                     Make<double>(kWorlds)};
    launch.fault = Make<std::uint64_t>(1);
    *launch.fault = ~std::uint64_t{0};
    launch.action_memory = Make<std::uint8_t>(kWorlds * spec.action.bytes());
    launch.memory.bytes = kTeamStateBytes + static_cast<std::int32_t>(sizeof(typename Env::Agents));
    if (shared) {
      launch.memory.actions = Place(spec.action.bytes());
      launch.memory.sums = Place(kSumParts * sizeof(AgentSums));
      launch.memory.world = Place(launch.world_bytes);
      launch.memory.obs_rows = agents < 7 ? agents : 7;
      launch.memory.obs = Place(launch.memory.obs_rows * widest);
    }
  }

  // The arrays that a launch writes, one after the other.
  std::vector<std::uint8_t> All() const {
    std::vector<std::uint8_t> all;
    for (const auto& one : held) all.insert(all.end(), one->begin(), one->end());
    return all;
  }

  template <typename T>
  T* Make(std::int64_t count) {
    held.push_back(std::make_unique<std::vector<std::uint8_t>>(
        static_cast<std::size_t>(count) * sizeof(T)));
    return reinterpret_cast<T*>(held.back()->data());
  }

  std::int32_t Place(std::int64_t bytes) {
    launch.memory.bytes = (launch.memory.bytes + 15) / 16 * 16;
    const std::int32_t at = launch.memory.bytes;
    launch.memory.bytes += static_cast<std::int32_t>(bytes);
    return at;
  }

  // A reset, then launches of some steps each, team after team.
  template <typename RunTeam>
  void Play(RunTeam&& run_team) {
    PlayRounds([&] {
      for (std::int64_t i = 0; i < kWorlds; ++i) {
        const auto memory = NewMemory(launch.memory.bytes);
        run_team(i, reinterpret_cast<std::uint8_t*>(memory.get()));
      }
    });
  }

  // Memory of the heap, whose ends a sanitizer knows.
  static std::unique_ptr<std::max_align_t[]> NewMemory(std::int32_t bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    auto memory = std::make_unique<std::max_align_t[]>(size / sizeof(std::max_align_t) + 1);
    std::memset(memory.get(), 0xA5, size);
    return memory;
  }

  template <typename RunAll>
  void PlayRounds(RunAll&& run_all) {
    for (std::int32_t round = 0; round < 12; ++round) {
      launch.command = static_cast<std::int32_t>(round == 0 ? Command::kReset : Command::kStep);
      launch.num_steps = round == 0 ? 1 : kRecorded;
      launch.record_steps = round % 2;
      launch.action_step = round * kRecorded;
      run_all();
    }
    CHECK(*launch.fault == ~std::uint64_t{0});
    for (std::int64_t i = 0; i < kWorlds; ++i) CHECK(launch.totals.episodes[i] > 0);
  }

  typename Env::Config config;
  EnvSpec spec;
  DeviceGroup groups[EnvSpec::kMaxGroups];
  std::vector<float> tables;
  std::vector<std::unique_ptr<std::vector<std::uint8_t>>> held;
  WorldLaunch launch{};
};

template <typename Env>
void RunThreads(Worlds<Env>& worlds, std::int32_t num_threads, bool waits) {
  worlds.Play([&](std::int64_t index, std::uint8_t* memory) {
    std::barrier<> barrier(num_threads);
    std::vector<std::jthread> threads;
    for (std::int32_t rank = 0; rank < num_threads; ++rank) {
      threads.emplace_back([&, rank] {
        const ThreadTeam team(index, memory, rank, num_threads, barrier, waits);
        WorldKernel<Env, typename Env::Obs, ThreadTeam>::Run(team, worlds.launch);
      });
    }
  });
}

template <typename Env>
void Compare(const typename Env::Config& config, std::int32_t limit) {
  for (const bool shared : {false, true}) {
    Worlds<Env> loops(config, limit, shared), threads(config, limit, shared);
    loops.Play([&](std::int64_t index, std::uint8_t* memory) {
      WorldKernel<Env, typename Env::Obs, Team>::Run(Team(index, memory, /*backwards=*/false),
                                                     loops.launch);
    });
    RunThreads(threads, 4, /*waits=*/true);
    CHECK(loops.All() == threads.All());
  }
}

// Worlds that threads step alone: a thread of a warp each, which share out what they write.
template <typename Env, typename Shape>
void RunWarp(Worlds<Env>& worlds, std::int32_t slot_bytes, bool waits) {
  using Kernel = WorldKernel<Env, typename Env::Obs, ThreadSolo, Shape>;
  constexpr std::int32_t kLanes = Worlds<Env>::kWorlds;
  worlds.PlayRounds([&] {
    const auto slots = Worlds<Env>::NewMemory(kLanes * slot_bytes);
    std::barrier<> barrier(kLanes);
    std::vector<std::jthread> threads;
    for (std::int64_t index = 0; index < kLanes; ++index) {
      threads.emplace_back([&, index] {
        const ThreadSolo solo(index, kLanes, reinterpret_cast<std::uint8_t*>(slots.get()),
                              slot_bytes, barrier, waits);
        CHECK(Kernel::Has(worlds.launch, index));
        Kernel::RunAlone(solo, worlds.launch);
      });
    }
  });
}

// `Shape`: that of the environment's worlds under these options.
template <typename Env, typename Shape>
void CompareAlone(const typename Env::Config& config, std::int32_t limit, std::int32_t slot_bytes) {
  Worlds<Env> loops(config, limit, false), threads(config, limit, false);
  CHECK(loops.launch.world_bytes == Shape::kWorldBytes);
  loops.launch.memory.bytes = slot_bytes;
  loops.Play([&](std::int64_t index, std::uint8_t* memory) {
    const Solo solo(index, memory, /*backwards=*/false);
    WorldKernel<Env, typename Env::Obs, Solo, Shape>::RunAlone(solo, loops.launch);
  });
  RunWarp<Env, Shape>(threads, slot_bytes, /*waits=*/true);
  CHECK(loops.All() == threads.All());
}

using FiveOnGrid = AloneShape<208, GroupShape{4, 21, 1}, GroupShape{1, 21, 1}>;

TagContinuous::Config Crowd(std::int32_t seen) {
  TagContinuous::Config config;
  config.num_taggers = 4;
  config.num_runners = 26;
  config.use_full_observation = false;
  config.num_other_agents_observed = seen;
  config.tagging_distance = 0.1;
  return config;
}

// So many that they are sorted into cells, and taggers are found in them.
TagContinuous::Config Many() {
  TagContinuous::Config config = Crowd(8);
  config.num_taggers = 20;
  config.num_runners = 120;
  return config;
}

const std::map<std::string, std::function<void()>>& Scenarios() {
  static const std::map<std::string, std::function<void()>> scenarios{
      {"cells", [] { Compare<TagContinuous>(Many(), 3); }},
      {"crowd", [] { Compare<TagContinuous>(Crowd(5), 9); }},
      {"crowd_in_rounds", [] { Compare<TagContinuous>(Crowd(20), 9); }},
      {"grid", [] { Compare<TagGridWorld>({.num_taggers = 6, .grid_length = 4}, 9); }},
      {"alone",
       [] { CompareAlone<TagGridWorld, FiveOnGrid>({.num_taggers = 4, .grid_length = 4}, 9, 84); }},
      {"alone_and_nobody_waits",
       [] {
         // must be found as well
         Worlds<TagGridWorld> worlds({.num_taggers = 4, .grid_length = 4}, 9, /*shared=*/false);
         RunWarp<TagGridWorld, FiveOnGrid>(worlds, 84, /*waits=*/false);
       }},
      {"nobody_waits",
       [] {
         // must be found: it shows that the others could be
         Worlds<TagContinuous> worlds(Crowd(5), 9, /*shared=*/true);
         RunThreads(worlds, 4, /*waits=*/false);
       }},
      {"world_comm", [] { Compare<MpeWorldComm>({}, 9); }},
  };
  return scenarios;
}

}  // namespace
}  // namespace rollouts

// Lists the scenarios where there is no argument.
int main(int argc, char** argv) {
  const auto& scenarios = rollouts::Scenarios();
  if (argc < 2) {
    for (const auto& [name, body] : scenarios) std::printf("%s\n", name.c_str());
    return 0;
  }
  scenarios.at(argv[1])();
  return 0;
}
