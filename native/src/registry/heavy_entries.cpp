// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "entries.h"
#include "registry_heavy_includes.inc"
#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/mujoco/mujoco_env.h"
#include "rollouts/pool/heavy_env_batch.h"

namespace rollouts {
namespace {

// The time limit of dm_control for all domains but Lqr; EnvPool's ids have the same.
constexpr std::int32_t kSuiteSteps = 1000;

// Names and defaults of an environment's options.
template <HeavyEnvironment Env>
Options HeavyOptions() {
  return ListOptions<Env>({});
}

// The spec under the options, one of which may name another model or game.
template <HeavyEnvironment Env>
EnvSpec HeavySpec(const OptionColumns& options) {
  const HeavyType& type = HeavyTypeOf<Env>();
  return type.make_spec(type.read_config(options, 0, nullptr).get());
}

// No template: environment types are passed as data, so that this is compiled once.
std::unique_ptr<EnvBatch> MakeHeavyBatch(const HeavyType& type, const OptionColumns& options,
                                         std::int32_t first_row, std::int32_t num_envs) {
  std::vector<AnyConfig> configs;
  // one Config for all, unless options differ
  const std::int32_t count = DifferByRow(options) ? num_envs : 1;
  for (std::int32_t i = 0; i < count; ++i) {
    configs.push_back(type.read_config(options, first_row + i, nullptr));
  }
  return std::make_unique<HeavyEnvBatch>(type, std::move(configs), num_envs);
}

template <HeavyEnvironment Env>
std::unique_ptr<EnvBatch> HeavyBatch(const OptionColumns& options, std::int32_t first_row,
                                     std::int32_t num_envs) {
  return MakeHeavyBatch(HeavyTypeOf<Env>(), options, first_row, num_envs);
}

// Facts of a task; they include those of the model if `of_model`. Throws SpecError for a model that
// the task cannot use.
template <HeavyEnvironment Env>
TaskFacts FactsOfTask(const OptionColumns& options, std::int32_t num_envs, bool of_model) {
  using Task = typename Env::Task;
  using Config = typename Task::Config;
  static_assert(std::is_trivially_copyable_v<Task> && std::is_trivially_copyable_v<Config>);
  const auto configs = ReadConfigs<Env>(options, 0, num_envs);
  TaskFacts facts;
  if (of_model) {
    const auto model = PhysicsModel::Get(ModelPath(configs[0]));
    CheckModel(*model, Task::kNeeds);
    facts.task = BytesOf(std::vector<Task>{Task(configs[0], *model)});
  }
  facts.type = dmc::NameOf(typeid(Task));
  facts.configs = BytesOf(std::vector<Config>(configs.begin(), configs.end()));
  facts.config_bytes = sizeof(Config);
  facts.frame_skip = configs[0].frame_skip;
  OptionLister own;
  Config defaults = configs[0];
  Task::VisitConfig(defaults, own);
  facts.own_options = own.options;
  facts.reads = Task::kReads;
  facts.contact_forces = std::any_of(configs.begin(), configs.end(), Task::ContactForces);
  return facts;
}

// FactsOfTask for a task of the DeepMind Control Suite, which has no options of its own.
TaskFacts FactsOfSuiteTask(const dmc::TaskEntry& entry, const OptionColumns& options, bool of_model) {
  if (!of_model) return entry.kind->facts(nullptr);
  const DmControlConfig config = ReadConfigs<DmControl>(options, 0, 1)[0];
  const auto model = PhysicsModel::Get(config.suite_model);
  TaskFacts facts = entry.kind->facts(model);
  facts.frame_skip = DmControl::Substeps(config, entry, model->view().timestep);
  return facts;
}

// Facts of Gymnasium's tasks for mujoco_warp's pool.
template <HeavyEnvironment Env>
DeviceLayout HeavyLayout() {
  DeviceLayout layout;
  if constexpr (requires { typename Env::Task; }) layout.task = FactsOfTask<Env>;
  return layout;
}

DeviceLayout SuiteLayout(const dmc::TaskEntry& entry) {
  DeviceLayout layout;
  layout.task = [&entry](const OptionColumns& options, std::int32_t, bool of_model) {
    return FactsOfSuiteTask(entry, options, of_model);
  };
  return layout;
}

}  // namespace

std::vector<RegistryEntry> HeavyEntries() {
#define ROLLOUTS_HEAVY_ENV(ID, TYPE, HEADER, MAX_STEPS, THRESHOLD) \
  RegistryEntry{ID,    MAX_STEPS, THRESHOLD, /*cpu_only=*/true, HEADER,         \
                #TYPE, HeavyOptions<TYPE>, HeavySpec<TYPE>, HeavyBatch<TYPE>, /*multi_agent=*/false, \
                HeavyLayout<TYPE>()},
  std::vector<RegistryEntry> entries{
#include "registry_heavy_entries.inc"
  };
#undef ROLLOUTS_HEAVY_ENV
  // a domain's tasks are listed in its header
  for (const dmc::Domain& domain : dmc::Domains()) {
    for (const dmc::TaskEntry& task : domain.tasks) {
      entries.push_back({task.id, kSuiteSteps, std::numeric_limits<double>::quiet_NaN(),
                         /*cpu_only=*/true, domain.header, "DmControl", HeavyOptions<DmControl>,
                         HeavySpec<DmControl>, HeavyBatch<DmControl>, /*multi_agent=*/false,
                         SuiteLayout(task)});
    }
  }
  return entries;
}

}  // namespace rollouts
