// SPDX-License-Identifier: Apache-2.0
#include "engines/mujoco_lanes/comparer.h"

#include <algorithm>
#include <numeric>

#include "engines/mujoco_lanes/comparison.h"
#include "engines/mujoco_native.h"
#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

constexpr std::int64_t kMostRows = 64;  // the most in one call of lanes

// An array has one row of numbers for each object of one of these kinds.
enum class Of { kPosition, kVelocity, kActivation, kOne, kBody, kGeom, kSite, kSensor, kTendon, kMatrix };

struct StepField {
  const char* name;
  Of of;
  int width;
  double* lanes::Row::* lanes;
  Place<double*> DataPlaces::* mujoco;  // null: the time
};

// The arrays of a step; the state comes first.
constexpr StepField kStepFields[] = {
    {"qpos", Of::kPosition, 1, &lanes::Row::qpos, &DataPlaces::qpos},
    {"qvel", Of::kVelocity, 1, &lanes::Row::qvel, &DataPlaces::qvel},
    {"act", Of::kActivation, 1, &lanes::Row::act, &DataPlaces::act},
    {"qacc_warmstart", Of::kVelocity, 1, &lanes::Row::qacc_warmstart, &DataPlaces::qacc_warmstart},
    {"time", Of::kOne, 1, &lanes::Row::time, nullptr},
    {"qacc", Of::kVelocity, 1, &lanes::Row::qacc, &DataPlaces::qacc},
    {"qfrc_actuator", Of::kVelocity, 1, &lanes::Row::qfrc_actuator, &DataPlaces::qfrc_actuator},
    {"qfrc_constraint", Of::kVelocity, 1, &lanes::Row::qfrc_constraint,
     &DataPlaces::qfrc_constraint},
    {"xpos", Of::kBody, 3, &lanes::Row::xpos, &DataPlaces::xpos},
    {"xquat", Of::kBody, 4, &lanes::Row::xquat, &DataPlaces::xquat},
    {"xmat", Of::kBody, 9, &lanes::Row::xmat, &DataPlaces::xmat},
    {"xipos", Of::kBody, 3, &lanes::Row::xipos, &DataPlaces::xipos},
    {"geom_xpos", Of::kGeom, 3, &lanes::Row::geom_xpos, &DataPlaces::geom_xpos},
    {"geom_xmat", Of::kGeom, 9, &lanes::Row::geom_xmat, &DataPlaces::geom_xmat},
    {"site_xpos", Of::kSite, 3, &lanes::Row::site_xpos, &DataPlaces::site_xpos},
    {"site_xmat", Of::kSite, 9, &lanes::Row::site_xmat, &DataPlaces::site_xmat},
    {"subtree_com", Of::kBody, 3, &lanes::Row::subtree_com, &DataPlaces::subtree_com},
    {"cinert", Of::kBody, 10, &lanes::Row::cinert, &DataPlaces::cinert},
    {"cvel", Of::kBody, 6, &lanes::Row::cvel, &DataPlaces::cvel},
    {"cfrc_ext", Of::kBody, 6, &lanes::Row::cfrc_ext, &DataPlaces::cfrc_ext},
    {"sensordata", Of::kSensor, 1, &lanes::Row::sensordata, &DataPlaces::sensordata},
    {"ten_length", Of::kTendon, 1, &lanes::Row::ten_length, &DataPlaces::ten_length},
    {"ten_velocity", Of::kTendon, 1, &lanes::Row::ten_velocity, &DataPlaces::ten_velocity},
};
struct StageField {
  const char* name;
  Of of;
  double* lanes::Probe::* lanes;        // null: a count
  Place<double*> DataPlaces::* mujoco;  // null: not an array of mjData
};

constexpr StageField kStageFields[] = {
    {"qM", Of::kMatrix, &lanes::Probe::qM, nullptr},
    {"qfrc_bias", Of::kVelocity, &lanes::Probe::qfrc_bias, &DataPlaces::qfrc_bias},
    {"qfrc_passive", Of::kVelocity, &lanes::Probe::qfrc_passive, &DataPlaces::qfrc_passive},
    {"qfrc_actuator", Of::kVelocity, &lanes::Probe::qfrc_actuator, &DataPlaces::qfrc_actuator},
    {"qacc_smooth", Of::kVelocity, &lanes::Probe::qacc_smooth, &DataPlaces::qacc_smooth},
    {"qfrc_constraint", Of::kVelocity, &lanes::Probe::qfrc_constraint,
     &DataPlaces::qfrc_constraint},
    {"qacc", Of::kVelocity, &lanes::Probe::qacc, &DataPlaces::qacc},
    {"solver_niter", Of::kOne, nullptr, nullptr},
    {"nefc", Of::kOne, nullptr, nullptr},
};
enum Stage : std::size_t { kInertia = 0, kIterations = 7, kConstraints = 8 };

std::int64_t SizeOf(Of of, const mjModel* model) {
  const ModelPlaces& at = Release().model;
  switch (of) {
    case Of::kPosition: return at.nq.In(model);
    case Of::kVelocity: return at.nv.In(model);
    case Of::kActivation: return at.na.In(model);
    case Of::kOne: return 1;
    case Of::kBody: return at.nbody.In(model);
    case Of::kGeom: return at.ngeom.In(model);
    case Of::kSite: return at.nsite.In(model);
    case Of::kSensor: return at.nsensordata.In(model);
    case Of::kTendon: return at.ntendon.In(model);
    case Of::kMatrix: return at.nv.In(model) * at.nv.In(model);
  }
  return 0;
}

// The part of an array that belongs to a row; null where there is no array.
double* RowOf(double* array, std::int64_t size, std::int64_t row) {
  return array ? array + size * row : nullptr;
}

void CopyRow(const double* from, std::int64_t size, std::int64_t row, double* to) {
  std::copy_n(from + size * row, size, to);
}

bool IsHandedBack(std::uint64_t rows, std::int64_t row) { return (rows >> row) & 1; }

}  // namespace

LanesComparer::LanesComparer(std::shared_ptr<const PhysicsModel> model)
    : model_(std::move(model)), read_(ReadByLanes(ModelOf(*model_))), physics_(model_) {}

LanesComparer::~LanesComparer() = default;

std::vector<ComparedArray> LanesComparer::StageArrays() const {
  std::vector<ComparedArray> arrays;
  for (const StageField& field : kStageFields) {
    arrays.push_back({field.name, SizeOf(field.of, ModelOf(*model_)), nullptr, nullptr});
  }
  return arrays;
}

std::vector<ComparedArray> LanesComparer::StepArrays() const {
  std::vector<ComparedArray> arrays;
  for (const StepField& field : kStepFields) {
    arrays.push_back(
        {field.name, field.width * SizeOf(field.of, ModelOf(*model_)), nullptr, nullptr});
  }
  return arrays;
}

std::vector<bool> LanesComparer::SensedNumbers() const {
  const ModelPlaces& at = Release().model;
  const mjModel* const model = ModelOf(*model_);
  std::vector<bool> sensed(static_cast<std::size_t>(at.nsensordata.In(model)));
  // with mjDSBL_SENSOR neither engine writes sensors
  constexpr std::int32_t kSensorsDisabled = 1 << 13;
  if (at.disableflags.In(model) & kSensorsDisabled) return sensed;
  for (std::int32_t i = 0; read_.model && i < at.nsensor.In(model); ++i) {
    const auto first = sensed.begin() + at.sensor_adr.In(model)[i];
    std::fill_n(first, at.sensor_dim.In(model)[i], lanes::CoversSensor(*read_.model, i));
  }
  return sensed;
}

mjData* LanesComparer::data() {
  return static_cast<mjData*>(const_cast<void*>(physics_.view().engine_data));
}

// Puts the state of a row into the simulation, with nothing left of an earlier row.
void LanesComparer::PutState(const ComparedStates& states, std::int64_t row) {
  const DataPlaces& at = Release().data;
  const ModelView& sizes = model_->view();
  CopyRow(states.qpos, sizes.nq, row, at.qpos.In(data()));
  CopyRow(states.qvel, sizes.nv, row, at.qvel.In(data()));
  CopyRow(states.act, sizes.na, row, at.act.In(data()));
  CopyRow(states.qacc_warmstart, sizes.nv, row, at.qacc_warmstart.In(data()));
  CopyRow(states.ctrl, sizes.nu, row, at.ctrl.In(data()));
  at.time.In(data()) = 0;
  for (MujocoWarning& warning : at.warning.In(data())) warning.number = 0;
}

bool LanesComparer::Warned() {
  const auto& warnings = Release().data.warning.In(data());
  return std::any_of(std::begin(warnings), std::end(warnings),
                     [](const MujocoWarning& one) { return one.number > 0; });
}

std::uint64_t LanesComparer::ForwardByLanes(const ComparedStates& states, std::int64_t first,
                                            std::int64_t count, std::int32_t width,
                                            const std::vector<ComparedArray>& arrays) {
  const ModelView& sizes = model_->view();
  const auto number = static_cast<std::size_t>(count);
  std::vector<double> times(number, 0.0);
  std::vector<std::int32_t> iterations(number), constraints(number);
  std::vector<lanes::Row> rows(number);
  std::vector<lanes::Probe> probes(number);
  for (std::size_t i = 0; i < number; ++i) {
    const std::int64_t row = first + static_cast<std::int64_t>(i);
    // const is cast away, because an evaluation changes no state
    const auto state = [&](const double* array, std::int64_t size) {
      return const_cast<double*>(array) + size * row;
    };
    rows[i].qpos = state(states.qpos, sizes.nq);
    rows[i].qvel = state(states.qvel, sizes.nv);
    rows[i].act = state(states.act, sizes.na);
    rows[i].qacc_warmstart = state(states.qacc_warmstart, sizes.nv);
    rows[i].ctrl = state(states.ctrl, sizes.nu);
    rows[i].time = &times[i];
    for (std::size_t f = 0; f < std::size(kStageFields); ++f) {
      if (!kStageFields[f].lanes) continue;
      probes[i].*kStageFields[f].lanes = RowOf(arrays[f].lanes, arrays[f].size, row);
    }
    probes[i].solver_niter = &iterations[i];
    probes[i].nefc = &constraints[i];
  }
  const std::uint64_t back = lanes::Forward(*read_.model, rows, probes, width);
  for (std::size_t i = 0; i < number; ++i) {
    if (IsHandedBack(back, static_cast<std::int64_t>(i))) continue;
    arrays[kIterations].lanes[first + static_cast<std::int64_t>(i)] = iterations[i];
    arrays[kConstraints].lanes[first + static_cast<std::int64_t>(i)] = constraints[i];
  }
  return back;
}

void LanesComparer::ForwardByMujoco(std::int64_t row, const std::vector<ComparedArray>& arrays) {
  const MujocoApi& api = Mujoco();
  const DataPlaces& at = Release().data;
  const mjModel* const model = ModelOf(*model_);
  mjData* const data = this->data();
  double* const inertia = RowOf(arrays[kInertia].mujoco, arrays[kInertia].size, row);
  Guarded([&] {
    api.forward(model, data);
    api.full_m(model, data, inertia);
  });
  for (std::size_t f = 0; f < std::size(kStageFields); ++f) {
    if (!kStageFields[f].mujoco) continue;
    std::copy_n((at.*kStageFields[f].mujoco).In(data), arrays[f].size,
                RowOf(arrays[f].mujoco, arrays[f].size, row));
  }
  // one entry for each island, or a single one without islands; without constraints that entry is
  // outdated
  const std::int32_t islands = std::clamp(at.nisland.In(data), 1, kMostIslands);
  const auto& iterations = at.solver_niter.In(data);
  const std::int32_t constraints = at.nefc.In(data);
  arrays[kIterations].mujoco[row] =
      constraints > 0 ? std::accumulate(iterations, iterations + islands, 0) : 0;
  arrays[kConstraints].mujoco[row] = constraints;
}

void LanesComparer::Forward(const ComparedStates& states, std::int32_t width,
                            const std::vector<ComparedArray>& arrays, const ComparedRows& rows) {
  for (std::int64_t first = 0; first < states.count; first += kMostRows) {
    const std::int64_t count = std::min(kMostRows, states.count - first);
    const std::uint64_t back = ForwardByLanes(states, first, count, width, arrays);
    for (std::int64_t i = 0; i < count; ++i) {
      PutState(states, first + i);
      ForwardByMujoco(first + i, arrays);
      rows.handed_back[first + i] = IsHandedBack(back, i);
      rows.warned[first + i] = Warned();
    }
  }
}

std::uint64_t LanesComparer::StepByLanes(const ComparedStates& states, std::int64_t first,
                                         std::int64_t count, const lanes::StepOptions& options,
                                         const std::vector<ComparedArray>& arrays) {
  const double* const begin[] = {states.qpos, states.qvel, states.act, states.qacc_warmstart};
  std::vector<lanes::Row> rows(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    lanes::Row& row = rows[static_cast<std::size_t>(i)];
    for (std::size_t f = 0; f < std::size(kStepFields); ++f) {
      row.*kStepFields[f].lanes = RowOf(arrays[f].lanes, arrays[f].size, first + i);
      if (f >= std::size(begin)) continue;
      CopyRow(begin[f], arrays[f].size, first + i, row.*kStepFields[f].lanes);
    }
    *row.time = 0;
    row.ctrl = states.ctrl + model_->view().nu * (first + i);
  }
  return lanes::Step(*read_.model, rows, options);
}

// Steps as Physics::Step and Physics::StepUpToDate do.
void LanesComparer::StepByMujoco(std::int64_t row, const lanes::StepOptions& options,
                                 const std::vector<ComparedArray>& arrays) {
  const MujocoApi& api = Mujoco();
  const DataPlaces& at = Release().data;
  const mjModel* const model = ModelOf(*model_);
  mjData* const data = this->data();
  Guarded([&] {
    for (std::int32_t step = 0; step < options.substeps; ++step) api.step(model, data);
    if (options.ending == lanes::Ending::kUpToDate) {
      api.step1(model, data);
    } else {
      api.rne_post_constraint(model, data);
    }
  });
  for (std::size_t f = 0; f < std::size(kStepFields); ++f) {
    double* const to = RowOf(arrays[f].mujoco, arrays[f].size, row);
    if (!to) continue;
    const auto place = kStepFields[f].mujoco;
    std::copy_n(place ? (at.*place).In(data) : &at.time.In(data), arrays[f].size, to);
  }
}

void LanesComparer::Step(const ComparedStates& states, const lanes::StepOptions& options,
                         const std::vector<ComparedArray>& arrays, const ComparedRows& rows) {
  for (std::int64_t first = 0; first < states.count; first += kMostRows) {
    const std::int64_t count = std::min(kMostRows, states.count - first);
    const std::uint64_t back = StepByLanes(states, first, count, options, arrays);
    for (std::int64_t i = 0; i < count; ++i) {
      PutState(states, first + i);
      StepByMujoco(first + i, options, arrays);
      rows.handed_back[first + i] = IsHandedBack(back, i);
      rows.warned[first + i] = Warned();
    }
  }
}

}  // namespace rollouts
