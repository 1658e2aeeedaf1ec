// SPDX-License-Identifier: Apache-2.0
#include "rollouts/envs/dm_control/dmc_env.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "rollouts/envs/mujoco/mujoco_env.h"
#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

// Adds the parts of the observation to the spec under dm_control's names, for dicts.
void DescribeParts(const ObservationParts& all, std::int32_t size, EnvSpec& spec) {
  static_assert(ObservationParts::kMost == EnvSpec::kMaxParts);
  if (all.count > EnvSpec::kMaxParts) throw SpecError("has too many parts of observations");
  const auto& parts = all.parts;
  for (std::int32_t i = 0; i < all.count; ++i) {
    // a part ends where the next one begins
    const std::int32_t end = i + 1 < all.count ? parts[i + 1].first : size;
    const std::int32_t length = end - parts[i].first;
    const std::int32_t columns = parts[i].columns;
    ObservationPart& part = spec.parts[spec.num_parts++];
    part.name = parts[i].name;
    if (columns == dmc::Observation::kScalar) continue;
    part.ndim = columns == dmc::Observation::kVector ? 1 : 2;
    part.shape[0] = part.ndim == 1 ? length : length / columns;
    part.shape[1] = part.ndim == 1 ? 0 : columns;
  }
}

}  // namespace

std::int32_t DmControl::Substeps(const Config& config, const dmc::TaskEntry& entry,
                                 double timestep) {
  if (config.frame_skip > 0) return config.frame_skip;
  // a task without a control interval: one step of physics
  if (entry.control_timestep == 0) return 1;
  return static_cast<std::int32_t>(std::lround(entry.control_timestep / timestep));
}

EnvSpec DmControl::MakeSpec(const Config& config) {
  // makes a whole simulation, because only its task knows how long an observation is
  const DmControl env(config);
  ObservationParts parts;
  dmc::Observation counter(nullptr, false, &parts);
  env.task_->Observe(counter);
  EnvSpec spec;
  spec.observation = ObservationSpace(config.obs_dtype, counter.size());
  spec.action = ActionSpace(env.physics_.model());
  spec.step_cost_ns = EnvSpec::CostNs(env.entry_.substep_ns, env.substeps_);
  ChangeSpecForLanes(config, env.physics_.model(), env.task_->Reads(), spec);
  DescribeParts(parts, counter.size(), spec);
  PixelView::ChangeSpec(config, spec);
  return spec;
}

DmControl::DmControl(const Config& config)
    : ModelOwner(PhysicsModel::Get(config.suite_model), config),
      config_(config),
      entry_(dmc::FindTask(config.suite_task)),
      task_(entry_.kind->make(physics_)),
      substeps_(Substeps(config, entry_, physics_.model().view().timestep)) {
  ChooseEngine(config, {.substeps = substeps_, .up_to_date = true, .reads = task_->Reads()});
}

// Draws a start, which may still need substeps to come to rest.
void DmControl::Draw(Rng& rng) {
  // done first of all, so that a start does not depend on the episode before
  changes_.BeginEpisode(physics_, rng);
  // the task's changes of the model come before positions that depend on them
  task_->DrawModel(rng);
  physics_.ResetData();
  task_->DrawStart(rng);
  // values derived from positions are still those of the model's own positions, and the first
  // substep starts from them
  if (task_->SubstepsToRest() > 0) physics_.StepUpToDate(nullptr, 1);
}

void DmControl::BeginAhead(std::span<DmControl* const> envs, std::span<const Rng> streams) {
  std::array<Physics::DueRest, Physics::kMostDue> due;
  std::size_t count = 0;
  for (std::size_t i = 0; i < envs.size(); ++i) {
    DmControl& env = *envs[i];
    const std::int32_t substeps = env.task_->SubstepsToRest();
    if (substeps <= 1) continue;
    Rng rng = streams[i];
    try {
      env.Draw(rng);
    } catch (...) {
      continue;  // Reset fails in the same way, and its caller gets the error
    }
    env.drawn_ = rng;
    due[count++] = {&env.physics_, substeps - 1};
  }
  Physics::SettleTogether({due.data(), count});
}

void DmControl::Reset(Rng& rng, bool /*forced*/) {
  if (const auto drawn = std::exchange(drawn_, {})) {
    rng = *drawn;
  } else {
    Draw(rng);
  }
  if (const std::int32_t substeps = task_->SubstepsToRest(); substeps > 0) {
    if (substeps > 1) physics_.SettleUpToDate(substeps - 1);
    *physics_.start().time = 0;
  }
  physics_.ForwardUnactuated();
  ForgetPicture();
  shown_.clear();
}

StepResult DmControl::Step(const Action* action, Rng& /*rng*/) {
  physics_.StepUpToDate(action, substeps_);
  ForgetPicture();
  shown_.clear();
  return StepResult::Of(task_->Reward(), task_->Terminated());
}

void DmControl::Observe(Obs* obs) const {
  ObserveBy([&](Obs* out) { return ObserveState(out); }, obs);
}

std::int64_t DmControl::ObserveState(Obs* obs) const {
  dmc::Observation writer(obs, config_.obs_dtype == "float32");
  if (shown_.empty()) {
    task_->Observe(writer);
  } else {
    writer.Put(shown_.data(), static_cast<std::int32_t>(shown_.size()));
  }
  return writer.bytes();
}

std::int32_t DmControl::ObservationSize() const {
  // without an output it only counts
  dmc::Observation counter(nullptr, false);
  task_->Observe(counter);
  return counter.size();
}

// Values of sensors of acceleration and touch are not part of MuJoCo's states, and no later step
// depends on them, so the observation is saved.
void DmControl::SaveState(std::vector<std::uint8_t>& out) const {
  const std::span<double> remembered = task_->Memory();
  MujocoMemory memory{{remembered.begin(), remembered.end()}, {}, shown_, changes_};
  if (memory.shown.empty()) {
    // saved as doubles, whatever the observation's dtype, so that nothing is rounded twice
    memory.shown.resize(static_cast<std::size_t>(ObservationSize()));
    dmc::Observation writer(reinterpret_cast<std::uint8_t*>(memory.shown.data()), false);
    task_->Observe(writer);
  }
  SaveMujoco(physics_, memory, out);
  SavePicture(out);
}

void DmControl::LoadState(std::span<const std::uint8_t> state) {
  const std::span<double> remembered = task_->Memory();
  MujocoMemory memory{std::vector<double>(remembered.size()), {},
                      std::vector<double>(static_cast<std::size_t>(ObservationSize())), {}};
  LoadMujoco(physics_, memory, pixels_.get(), state);
  std::copy(memory.infos.begin(), memory.infos.end(), remembered.begin());
  shown_ = std::move(memory.shown);
  changes_ = std::move(memory.changes);
  // done last, because it may fail: a failed simulation keeps what its next episode needs
  physics_.Refresh();
}

}  // namespace rollouts
