// SPDX-License-Identifier: Apache-2.0
#include "rollouts/pool/heavy_env_batch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <utility>

#include "rollouts/pool/run_or_fail.h"
#include "rollouts/pool/spec_difference.h"
#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

constexpr double kNoInfo[EnvSpec::kMaxInfoValues] = {};

std::vector<std::shared_ptr<const void>> Shared(const HeavyType& type,
                                                const std::vector<AnyConfig>& configs) {
  std::vector<std::shared_ptr<const void>> shared;
  for (const AnyConfig& config : configs) {
    // such as an mjModel, which specs and environments then share in place of reading a file again
    if (auto held = type.share(config.get())) shared.push_back(std::move(held));
  }
  return shared;
}

// The spec of all environments; its cost is that of the slowest, and all else is equal.
EnvSpec CommonSpec(const HeavyType& type, const std::vector<AnyConfig>& configs) {
  EnvSpec common = type.make_spec(configs[0].get());
  for (std::size_t i = 1; i < configs.size(); ++i) {
    const EnvSpec spec = type.make_spec(configs[i].get());
    const std::string difference = SpecDifference(common, spec);
    if (!difference.empty()) {
      throw SpecError("the environments of a pool must have equal spaces, and the options of " +
                      std::string("environments 0 and ") + std::to_string(i) +
                      " make them differ in the " + difference);
    }
    // the pool schedules all of them by the cost of the slowest
    common.step_cost_ns = std::max(common.step_cost_ns, spec.step_cost_ns);
    common.together = std::max(common.together, spec.together);
  }
  return common;
}

bool CanStepAhead(const HeavyType& type, const EnvSpec& spec) {
  return type.step_ahead && spec.together > 1;
}

// Tells if there are info columns: those of begun episodes may be missing.
bool HasColumns(const EnvSpec& spec, void* const* columns) {
  return spec.num_infos > 0 && columns[0];
}

// Marks a number that an environment has not written: a NaN with this bit pattern.
constexpr double kUntold = std::bit_cast<double>(std::uint64_t{0x7FF8'5EED'5EED'5EED});

// Tells if the environment wrote as many values as the spec announces, no fewer and no more.
[[maybe_unused]] bool AreTold(const EnvSpec& spec, std::span<const double> values) {
  std::int32_t announced = 0;
  for (std::int32_t i = 0; i < spec.num_infos; ++i) announced += spec.infos[i].size();
  const auto untold = [](double value) {
    return std::bit_cast<std::uint64_t>(value) == std::bit_cast<std::uint64_t>(kUntold);
  };
  const auto split = values.begin() + announced;
  return std::none_of(values.begin(), split, untold) && std::all_of(split, values.end(), untold);
}

// An environment's values of its info columns, one after the other.
using InfoValues = std::array<double, EnvSpec::kMaxInfoValues>;

InfoValues InfosOf(const HeavyEnv& env, [[maybe_unused]] const EnvSpec& spec) {
  InfoValues values;
#ifndef NDEBUG
  values.fill(kUntold);  // AreTold checks for it
#endif
  env.WriteInfo(values.data());
  assert(AreTold(spec, values));
  return values;
}

void StoreInfos(const EnvSpec& spec, const double* values, void* const* columns,
                std::int64_t row) {
  for (std::int32_t i = 0; i < spec.num_infos; ++i) {
    StoreInfo(spec.infos[i], columns[i], row, values);
    values += spec.infos[i].size();
  }
}

// A heavy environment for RunCommand, which also returns the infos of the episode that it began.
struct HeavyRef {
  using Action = HeavyEnv::Action;
  using Obs = HeavyEnv::Obs;
  HeavyEnv& env;
  const EnvSpec& spec;
  bool stepped = false;
  bool stepped_ahead = false;

  void Reset(Rng& rng, bool forced) { env.Reset(rng, forced); }
  StepResult Step(const Action* action, Rng& rng) {
    stepped = true;
    const StepResult result = env.Step(action, rng);
    // read now, because the next episode may begin in the same row
    stepped_ahead = env.stepped_ahead();
    return result;
  }
  void Observe(Obs* obs) const { env.Observe(obs); }
  void WriteInfoRow(void* const* columns, std::int64_t row) const {
    // only same-step autoreset has columns for begun episodes
    if (!HasColumns(spec, columns)) return;
    StoreInfos(spec, InfosOf(env, spec).data(), columns, row);
  }
};

}  // namespace

HeavyEnvBatch::HeavyEnvBatch(const HeavyType& type, std::vector<AnyConfig> configs,
                             std::int32_t num_envs)
    : type_(type),
      shared_(Shared(type, configs)),
      spec_(CommonSpec(type, configs)),
      configs_(std::move(configs)),
      steps_ahead_(CanStepAhead(type, spec_)),
      envs_(num_envs),
      clocks_(num_envs),
      tallies_(type.step_ahead ? std::make_shared<EngineTallies>(num_envs) : nullptr) {}

void HeavyEnvBatch::Make(std::int32_t first, std::int32_t count) {
  for (std::int32_t i = first; i < first + count; ++i) {
    // made one at a time, because an engine's constructor may write the engine's global variables
    const std::lock_guard lock(make_mutex_);
    envs_[i] = type_.make(ConfigOf(i));
  }
}

void HeavyEnvBatch::Run(std::span<const std::int32_t> envs, const Work& work, RowSource& source) {
  if (type_.run_turns && envs.size() > 1) return RunTurns(envs, work, source);
  if (steps_ahead_) return RunAhead(envs, work, source);
  for (const std::int32_t env : envs) {
    // taken only when there is something to write: an engine may compute for long without holding a
    // row
    RowSource::Rows rows;
    const auto take_row = [&] {
      if (rows.count == 0) rows = source.Take(1);
      return RowRef{rows.view, rows.first};
    };
    RunOne(env, work, source, take_row);
    source.Finish(rows);
  }
}

// Turns end in any order, so their rows are taken in advance.
void HeavyEnvBatch::RunTurns(std::span<const std::int32_t> envs, const Work& work,
                             RowSource& source) {
  while (!envs.empty()) {
    const RowSource::Rows rows = source.Take(static_cast<std::int32_t>(envs.size()));
    type_.run_turns(rows.count, [&](std::int32_t i) {
      RunOne(envs[i], work, source, [&] { return RowRef{rows.view, rows.first + i}; });
    });
    envs = envs.subspan(rows.count);
    source.Finish(rows);
  }
}

// The engine makes its part of a step for several environments at once; the rest is done one by
// one.
void HeavyEnvBatch::RunAhead(std::span<const std::int32_t> envs, const Work& work,
                             RowSource& source) {
  while (!envs.empty()) {
    auto some = envs.first(std::min(envs.size(), HeavyType::kMostAhead));
    envs = envs.subspan(some.size());
    StepAhead(some, work);
    BeginAhead(some, [&](std::size_t i) {
      return IsBegin(work.commands[some[i]], clocks_[some[i]].value);
    });
    while (!some.empty()) {
      const RowSource::Rows rows = source.Take(static_cast<std::int32_t>(some.size()));
      RunThenBegin(some.first(rows.count), work, source, rows);
      some = some.subspan(rows.count);
      source.Finish(rows);
    }
  }
}

// Runs environments whose rows were taken already. In same-step mode those whose episodes end begin
// the next ones together, after all steps.
void HeavyEnvBatch::RunThenBegin(std::span<const std::int32_t> envs, const Work& work,
                                 RowSource& source, const RowSource::Rows& rows) {
  const bool begins = type_.begin_ahead && work.rules.autoreset == AutoresetMode::kSameStep;
  Work steps = work;
  if (begins) steps.rules.autoreset = AutoresetMode::kDisabled;
  std::uint64_t ended = 0, failed = 0;
  const auto row_of = [&](std::size_t i) {
    return RowRef{rows.view, rows.first + static_cast<std::int64_t>(i)};
  };
  for (std::size_t i = 0; i < envs.size(); ++i) {
    const std::uint64_t bit = std::uint64_t{1} << i;
    const bool step = IsStep(work.commands[envs[i]], clocks_[envs[i]].value);
    if (!RunOne(envs[i], steps, source, [&] { return row_of(i); })) failed |= bit;
    if (!begins || !step || !clocks_[envs[i]].value.ended) continue;
    ended |= bit;
    // the observation that the step showed is the last one of its episode
    if (rows.view.final_obs) {
      const std::int64_t row = row_of(i).row;
      std::copy_n(rows.view.ObsRow<std::uint8_t>(row), rows.view.obs_bytes,
                  rows.view.FinalObsRow<std::uint8_t>(row));
    }
  }
  if (ended == 0) return;
  BeginAhead(envs, [&](std::size_t i) { return (ended >> i & 1) != 0; });
  for (std::uint64_t rest = ended; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(rest));
    BeginOne(envs[i], source, row_of(i), (failed >> i & 1) != 0);
  }
}

// Begins the next episode of an environment, in the row in which its last one ended.
void HeavyEnvBatch::BeginOne(std::int32_t env, RowSource& source, const RowRef& row, bool has_failed) {
  HeavyRef ref{*envs_[env], spec_};
  EpisodeClock& clock = clocks_[env].value;
  if (has_failed) return BeginInFailedRow(ref, clock, row);
  TurnOrFail(
      env, /*begins_next=*/true, ref, clock, source, [&] { BeginInRow(ref, clock, row); },
      [&] { return row; }, [&](const RowRef& out) { WriteInfo(kNoInfo, out); });
}

// Makes those parts of the resets that can be made for several environments at once. `is_due`
// selects the environments.
template <typename IsDue>
void HeavyEnvBatch::BeginAhead(std::span<const std::int32_t> envs, IsDue&& is_due) {
  if (!type_.begin_ahead) return;
  std::array<HeavyEnv*, HeavyType::kMostAhead> due;
  std::vector<Rng> streams;
  for (std::size_t i = 0; i < envs.size(); ++i) {
    if (!is_due(i)) continue;
    due[streams.size()] = envs_[envs[i]].get();
    streams.push_back(NextStream(clocks_[envs[i]].value));
  }
  if (!streams.empty()) type_.begin_ahead({due.data(), streams.size()}, streams);
}

void HeavyEnvBatch::StepAhead(std::span<const std::int32_t> envs, const Work& work) {
  std::array<HeavyEnv*, HeavyType::kMostAhead> due;
  std::array<const HeavyEnv::Action*, HeavyType::kMostAhead> actions;
  std::size_t count = 0;
  for (const std::int32_t env : envs) {
    if (!IsStep(work.commands[env], clocks_[env].value)) continue;
    due[count] = envs_[env].get();
    actions[count++] = work.actions + env * work.action_bytes;
  }
  if (count > 0) type_.step_ahead({due.data(), count}, {actions.data(), count});
}

template <typename TakeRow>
bool HeavyEnvBatch::RunOne(std::int32_t env, const Work& work, RowSource& source,
                           TakeRow&& take_row) {
  const auto write_info = [&](const RowRef& out) {
    WriteInfo(InfosOf(*envs_[env], spec_).data(), out);
  };
  HeavyRef ref{*envs_[env], spec_};
  const bool ran = RunOrFail(env, work, ref, clocks_[env].value, source, take_row, write_info,
                             [&](const RowRef& out) { WriteInfo(kNoInfo, out); });
  if (tallies_ && ref.stepped) tallies_->Add(env, ref.stepped_ahead);
  return ran;
}

void HeavyEnvBatch::SaveState(std::int32_t env, std::vector<std::uint8_t>& out) const {
  // refuses types of environments that cannot save
  CheckState(env, {});
  envs_[env]->SaveState(out);
}

void HeavyEnvBatch::CheckState(std::int32_t, std::span<const std::uint8_t>) const {
  if (!type_.saveable) throw SpecError("environments of this kind save no state");
}

void HeavyEnvBatch::LoadState(std::int32_t env, std::span<const std::uint8_t> state) {
  CheckState(env, state);
  envs_[env]->LoadState(state);
}

Frame HeavyEnvBatch::Render(std::int32_t env) const {
  if (!type_.drawn) return EnvBatch::Render(env);
  Frame frame;
  const auto [height, width] = envs_[env]->Render(frame.rgb);
  frame.height = height;
  frame.width = width;
  return frame;
}

Options HeavyEnvBatch::OptionsOf(std::int32_t env) const {
  return type_.list_options(ConfigOf(env));
}

std::function<void()> HeavyEnvBatch::Prepare(std::span<const std::int32_t> envs,
                                             const EnvChanges& given, std::int32_t first_row) {
  // shared, because std::function copies what it holds, and changes cannot be copied
  const auto changes = std::make_shared<std::vector<Change>>();
  // done before the change, which must not run out of memory
  if (!given.options.empty() && configs_.size() == 1) {
    configs_.resize(envs_.size(), AnyConfig(configs_[0]));
  }
  for (const std::int32_t env : envs) {
    Change change{env, {}, {}, {}};
    if (!given.options.empty()) PrepareConfig(change, given.options, first_row);
    PrepareModel(change, given.model, first_row);
    changes->push_back(std::move(change));
  }
  return [this, changes] {
    for (Change& change : *changes) {
      // only swaps and moves, so that nothing here can fail halfway
      if (change.config) std::swap(configs_[change.env], change.config);
      if (change.built) std::swap(envs_[change.env], change.built);
      steps_ahead_ |= change.steps_ahead;
      if (change.model) envs_[change.env]->SetModel(std::move(*change.model));
    }
  };
}

void HeavyEnvBatch::PrepareConfig(Change& change, const OptionColumns& given,
                                  std::int32_t first_row) const {
  AnyConfig config = type_.read_config(given, first_row + change.env, ConfigOf(change.env));
  // equal options keep the engine
  if (type_.list_options(config.get()) == OptionsOf(change.env)) return;
  const EnvSpec spec = type_.make_spec(config.get());
  const std::string difference = SpecDifference(spec_, spec);
  if (!difference.empty()) {
    throw SpecError("these options would change the " + difference +
                    "; make a new pool for them");
  }
  // may throw, while nothing has changed yet
  change.built = type_.make(config.get());
  change.built->Follow(*envs_[change.env]);
  change.config = std::move(config);
  change.steps_ahead = CanStepAhead(type_, spec);
}

// Gives an environment that is built anew the model fields that it had before.
void HeavyEnvBatch::PrepareModel(Change& change, const ModelColumns& given,
                                 std::int32_t first_row) const {
  if (!type_.has_model) {
    if (!given.empty()) throw SpecError(kNoModel);
    return;
  }
  if (given.empty() && !change.built) return;
  const HeavyEnv& before = *envs_[change.env];
  // fields that are not named keep the values given before
  ModelOverrides next = MergeOverrides(before.model_overrides(), given, first_row + change.env);
  try {
    (change.built ? *change.built : before).CheckOverrides(next);
  } catch (const SpecError& error) {
    throw SpecError("row " + std::to_string(first_row + change.env) + ": " + error.what());
  }
  change.model = std::move(next);
}

ModelArray HeavyEnvBatch::ReadModel(std::int32_t env, const std::string& field,
                                    bool of_file) const {
  if (!type_.has_model) return EnvBatch::ReadModel(env, field, of_file);
  return envs_[env]->ReadModel(field, of_file);
}

std::vector<std::string> HeavyEnvBatch::ModelFields(std::int32_t env) const {
  if (!type_.has_model) return EnvBatch::ModelFields(env);
  return envs_[env]->ModelFields();
}

// Writes the infos of a step. They also stand in for the infos of the next episode until a reset
// writes these: no reset follows an end that is only reported, and a reset may fail.
void HeavyEnvBatch::WriteInfo(const double* values, const RowRef& out) const {
  StoreInfos(spec_, values, out.view.infos, out.row);
  if (HasColumns(spec_, out.view.begun_infos)) {
    StoreInfos(spec_, values, out.view.begun_infos, out.row);
  }
}

}  // namespace rollouts
