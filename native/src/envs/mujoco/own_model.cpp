// SPDX-License-Identifier: Apache-2.0
#include "rollouts/envs/mujoco/own_model.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "rollouts/envs/mujoco/task_math.h"
#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

std::shared_ptr<const PhysicsModel> ModelOf(const MujocoConfig& config) {
  if (config.xml_file.empty()) {
    throw SpecError("MuJoCo-v0 needs a model: pass xml_file=\"robot.xml\", a path or one of "
                    "Gymnasium's models");
  }
  auto model = PhysicsModel::Get(ModelPath(config));
  CheckModel(*model, {});
  return model;
}

// The count of numbers in all parts.
std::int32_t Count(const std::vector<ModelPart>& parts) {
  std::int64_t count = 0;
  for (const ModelPart& part : parts) count += part.count;
  return static_cast<std::int32_t>(count);
}

// The cost of a substep, as measured for models of 2 to 23 velocities: 1 to 2 us for each of them.
std::int32_t SubstepNs(const PhysicsModel& model) { return 1'000 + 1'500 * model.view().nv; }

// Tells if contact forces are needed: they are computed only then, as they cost a pass over all
// bodies.
bool WantsContactForces(const PhysicsModel& model, const OwnModel::Config& config) {
  return NeedContactForces(FindParts(model, "observation", config.observation)) ||
         NeedContactForces(FindParts(model, "info", config.info));
}

// The arrays that the options name.
DataArrays Reads(const PhysicsModel& model, const OwnModel::Config& config) {
  DataArrays reads = 0;
  for (const auto& [option, names] :
       {std::pair{"observation", config.observation}, std::pair{"info", config.info}}) {
    for (const ModelPart& part : FindParts(model, option, names)) {
      reads |= ArrayInLanes(PartArray(part));
    }
  }
  return reads;
}

}  // namespace

std::shared_ptr<const void> OwnModel::Share(const Config& config) {
  return PixelView::Share(ModelOf(config), config);
}

EnvSpec OwnModel::MakeSpec(const Config& config) {
  const auto model = ModelOf(config);
  FindKeyframe(*model, config.keyframe);
  const std::int32_t observed = Count(FindParts(*model, "observation", config.observation));
  if (observed == 0) {
    throw SpecError("option 'observation' is empty, expected names such as [\"qpos\", \"qvel\"]");
  }
  // one column for all of them; Python splits it
  const std::int32_t values = kNumRowValues + Count(FindParts(*model, "info", config.info));
  if (values > EnvSpec::kMaxInfoValues) {
    throw SpecError("option 'info' names " + std::to_string(values - kNumRowValues) +
                    " numbers, expected at most " +
                    std::to_string(EnvSpec::kMaxInfoValues - kNumRowValues) +
                    "; observation has no limit, and brackets choose elements (\"xpos[1:3]\")");
  }
  const InfoSpec infos[] = {{"model_step", DType::kFloat64, values}};
  return MakeMujocoSpec(config, *model, infos, observed, SubstepNs(*model),
                        Reads(*model, config));
}

OwnModel::OwnModel(const Config& config)
    : ModelOwner(ModelOf(config), config),
      config_(config),
      keyframe_(FindKeyframe(physics_.model(), config.keyframe)),
      contact_forces_(WantsContactForces(physics_.model(), config)),
      observed_(Find(FindParts(physics_.model(), "observation", config.observation))),
      told_(Find(FindParts(physics_.model(), "info", config.info))),
      start_(static_cast<std::size_t>(physics_.model().view().nq + physics_.model().view().nv)),
      infos_(static_cast<std::size_t>(kNumRowValues + told_.size)) {
  ChooseEngine(config, {.substeps = config.frame_skip,
                        .contact_forces = contact_forces_,
                        .reads = Reads(physics_.model(), config)});
}

OwnModel::Sources OwnModel::Find(const std::vector<ModelPart>& parts) const {
  Sources sources{.parts = {}, .size = Count(parts)};
  for (const ModelPart& part : parts) {
    // addresses stay the same as long as the simulation exists
    sources.parts.push_back({PartData(physics_, part), static_cast<std::int32_t>(part.count)});
  }
  return sources;
}

void OwnModel::Reset(Rng& rng, bool /*forced*/) {
  changes_.BeginEpisode(physics_, rng);
  const ModelView& model = physics_.model_view();
  double* const qpos = start_.data();
  // start_ holds both, one after the other
  double* const qvel = qpos + model.nq;
  if (keyframe_ == kNoKeyframe) {
    // without a keyframe: the model's own positions, at rest
    std::copy_n(model.qpos0, model.nq, qpos);
    std::fill_n(qvel, model.nv, 0.0);
  } else {
    std::copy_n(model.key_qpos + std::ptrdiff_t{keyframe_} * model.nq, model.nq, qpos);
    std::copy_n(model.key_qvel + std::ptrdiff_t{keyframe_} * model.nv, model.nv, qvel);
  }
  // 0 draws nothing, so that other random numbers of the episode do not change
  if (config_.reset_noise_scale != 0) {
    mujoco::AddUniform(rng, config_.reset_noise_scale, qpos, model.nq);
    if (config_.qvel_noise == "normal") {
      mujoco::AddNormal(rng, config_.reset_noise_scale, qvel, model.nv);
    } else {
      mujoco::AddUniform(rng, config_.reset_noise_scale, qvel, model.nv);
    }
  }
  physics_.Reset(qpos, qvel, keyframe_);
  ForgetPicture();
  shown_.clear();
  TakeInfos(/*stepped=*/false);
}

StepResult OwnModel::Step(const Action* action, Rng& /*rng*/) {
  physics_.Step(action, config_.frame_skip, contact_forces_);
  ForgetPicture();
  shown_.clear();
  TakeInfos(/*stepped=*/true);
  // Python computes rewards and ends, and sets them in the pool afterwards
  return StepResult::Of(0, false);
}

void OwnModel::TakeInfos(bool stepped) {
  infos_[kStepped] = stepped;
  infos_[kDt] = physics_.model_view().timestep * config_.frame_skip;
  double* out = infos_.data() + kNumRowValues;
  for (const Source& part : told_.parts) out = std::copy_n(part.values, part.count, out);
}

void OwnModel::Observe(Obs* obs) const {
  ObserveBy([&](Obs* out) { return ObserveState(out); }, obs);
}

std::int64_t OwnModel::ObserveState(Obs* obs) const {
  ObservationWriter writer(obs, config_.obs_dtype == "float32");
  // until the next step, a loaded state shows the observation that it was saved with
  if (!shown_.empty()) {
    writer.Put(shown_.data(), static_cast<std::int32_t>(shown_.size()));
    return writer.bytes();
  }
  for (const Source& part : observed_.parts) writer.Put(part.values, part.count);
  return writer.bytes();
}

void OwnModel::WriteInfo(double* values) const {
  std::copy(infos_.begin(), infos_.end(), values);
}

// Saves the observation as MujocoEnv does: arrays that depend on positions are not part of MuJoCo's
// states.
void OwnModel::SaveState(std::vector<std::uint8_t>& out) const {
  MujocoMemory memory{.infos = infos_, .shown = shown_, .changes = changes_};
  if (memory.shown.empty()) {
    for (const Source& part : observed_.parts) {
      memory.shown.insert(memory.shown.end(), part.values, part.values + part.count);
    }
  }
  SaveMujoco(physics_, memory, out);
  SavePicture(out);
}

void OwnModel::LoadState(std::span<const std::uint8_t> state) {
  MujocoMemory memory{.infos = infos_,
                      .shown = std::vector<double>(static_cast<std::size_t>(observed_.size)),
                      .changes = {}};
  LoadMujoco(physics_, memory, pixels_.get(), state);
  infos_ = std::move(memory.infos);
  shown_ = std::move(memory.shown);
  changes_ = std::move(memory.changes);
}

}  // namespace rollouts
