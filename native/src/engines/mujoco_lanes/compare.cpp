// SPDX-License-Identifier: Apache-2.0
#include "compare.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <string_view>

#include "../mujoco_native.h"
#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

constexpr std::int64_t kMostRows = 64;  // of a call to lanes

// What the rows of an array belong to, and how many numbers each has.
enum class Of { kPosition, kVelocity, kActivation, kOne, kBody, kGeom, kSite, kSensor, kTendon, kMatrix };

struct StepField {
  const char* name;
  Of of;
  int width;
  double* lanes::Row::* lanes;
  Place<double*> DataPlaces::* mujoco;  // null: the time
};

// The state comes first.
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
constexpr std::size_t kNumState = 5;

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

lanes::ModelSizes SizesOf(const mjModel* model) {
  const ModelPlaces& at = Release().model;
  const auto read = [&](const Place<std::int64_t>& size) {
    return static_cast<std::int32_t>(size.In(model));
  };
  return {.nq = read(at.nq), .nv = read(at.nv), .nu = read(at.nu), .na = read(at.na),
          .nbody = read(at.nbody), .njnt = read(at.njnt), .ngeom = read(at.ngeom),
          .nsite = read(at.nsite), .ntendon = read(at.ntendon), .nsensor = read(at.nsensor),
          .nsensordata = read(at.nsensordata), .neq = read(at.neq), .npair = read(at.npair),
          .nexclude = read(at.nexclude), .nmocap = read(at.nmocap), .nflex = read(at.nflex),
          .nplugin = read(at.nplugin), .nwrap = read(at.nwrap), .nhistory = read(at.nhistory),
          .ntree = read(at.ntree), .nJten = read(at.nJten)};
}

lanes::ModelOrReason ReadByLanes(const mjModel* model) {
  const std::vector<ModelField> fields = ModelFields(model);
  return lanes::ReadModel(SizesOf(model), [&](const char* name) -> const void* {
    const ModelField* const field = FieldNamed(fields, name);
    return field ? field->DataIn(model) : nullptr;
  });
}

// Of a row in arrays of all rows; null where there is none.
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

// The state of a row, and nothing of what was before.
void LanesComparer::PutState(const ComparedStates& states, std::int64_t row) {
  const DataPlaces& at = Release().data;
  auto* const data = static_cast<mjData*>(const_cast<void*>(physics_.view().engine_data));
  const ModelView& sizes = model_->view();
  CopyRow(states.qpos, sizes.nq, row, at.qpos.In(data));
  CopyRow(states.qvel, sizes.nv, row, at.qvel.In(data));
  CopyRow(states.act, sizes.na, row, at.act.In(data));
  CopyRow(states.qacc_warmstart, sizes.nv, row, at.qacc_warmstart.In(data));
  CopyRow(states.ctrl, sizes.nu, row, at.ctrl.In(data));
  at.time.In(data) = 0;
  for (MujocoWarning& warning : at.warning.In(data)) warning.number = 0;
}

bool LanesComparer::Warned() const {
  const auto& warnings =
      Release().data.warning.In(static_cast<const mjData*>(physics_.view().engine_data));
  return std::any_of(std::begin(warnings), std::end(warnings),
                     [](const MujocoWarning& one) { return one.number > 0; });
}

void LanesComparer::Forward(const ComparedStates& states, std::int32_t width,
                            const std::vector<ComparedArray>& arrays, const ComparedRows& rows) {
  const MujocoApi& api = Mujoco();
  const DataPlaces& at = Release().data;
  const mjModel* const model = ModelOf(*model_);
  auto* const data = static_cast<mjData*>(const_cast<void*>(physics_.view().engine_data));
  const ModelView& sizes = model_->view();
  std::int32_t counts[2][kMostRows];

  for (std::int64_t first = 0; first < states.count; first += kMostRows) {
    const std::int64_t count = std::min(kMostRows, states.count - first);
    // lanes: they move nothing, so the caller's states may be theirs
    std::vector<double> times(static_cast<std::size_t>(count), 0.0);
    std::vector<lanes::Row> of_lanes(static_cast<std::size_t>(count));
    std::vector<lanes::Probe> probes(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      const auto state = [&](const double* array, std::int64_t size) {
        return const_cast<double*>(array) + size * (first + i);
      };
      lanes::Row& row = of_lanes[static_cast<std::size_t>(i)];
      row.qpos = state(states.qpos, sizes.nq);
      row.qvel = state(states.qvel, sizes.nv);
      row.act = state(states.act, sizes.na);
      row.qacc_warmstart = state(states.qacc_warmstart, sizes.nv);
      row.ctrl = state(states.ctrl, sizes.nu);
      row.time = &times[static_cast<std::size_t>(i)];
      lanes::Probe& probe = probes[static_cast<std::size_t>(i)];
      for (std::size_t f = 0; f < std::size(kStageFields); ++f) {
        if (!kStageFields[f].lanes) continue;
        probe.*kStageFields[f].lanes = RowOf(arrays[f].lanes, arrays[f].size, first + i);
      }
      probe.solver_niter = &counts[0][i];
      probe.nefc = &counts[1][i];
    }
    const std::uint64_t back = lanes::Forward(*read_.model, of_lanes, probes, width);

    // MuJoCo, one after another
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = first + i;
      PutState(states, row);
      Guarded([&] { api.forward(model, data); });
      rows.handed_back[row] = IsHandedBack(back, i);
      rows.warned[row] = Warned();
      for (std::size_t f = 0; f < std::size(kStageFields); ++f) {
        double* const to = RowOf(arrays[f].mujoco, arrays[f].size, row);
        if (to && kStageFields[f].mujoco) {
          std::copy_n((at.*kStageFields[f].mujoco).In(data), arrays[f].size, to);
        }
      }
      if (double* const to = RowOf(arrays[kInertia].mujoco, arrays[kInertia].size, row)) {
        Guarded([&] { api.full_m(model, data, to); });
      }
      // one entry for each island, and one where there are none
      const std::int32_t islands = std::clamp(at.nisland.In(data), 1, kMostIslands);
      const auto& iterations = at.solver_niter.In(data);
      const bool solved = at.nefc.In(data) > 0;
      arrays[kIterations].mujoco[row] =
          solved ? std::accumulate(iterations, iterations + islands, 0) : 0;
      arrays[kConstraints].mujoco[row] = at.nefc.In(data);
      if (IsHandedBack(back, i)) continue;
      arrays[kIterations].lanes[row] = counts[0][i];
      arrays[kConstraints].lanes[row] = counts[1][i];
    }
  }
}

void LanesComparer::Step(const ComparedStates& states, const lanes::StepOptions& options,
                         const std::vector<ComparedArray>& arrays, const ComparedRows& rows) {
  const MujocoApi& api = Mujoco();
  const DataPlaces& at = Release().data;
  const mjModel* const model = ModelOf(*model_);
  auto* const data = static_cast<mjData*>(const_cast<void*>(physics_.view().engine_data));
  const ModelView& sizes = model_->view();
  const double* const begin[] = {states.qpos, states.qvel, states.act, states.qacc_warmstart};

  for (std::int64_t first = 0; first < states.count; first += kMostRows) {
    const std::int64_t count = std::min(kMostRows, states.count - first);
    // lanes, in the caller's arrays
    std::vector<lanes::Row> of_lanes(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = first + i;
      for (std::size_t f = 0; f < std::size(kStepFields); ++f) {
        double* const to = RowOf(arrays[f].lanes, arrays[f].size, row);
        of_lanes[static_cast<std::size_t>(i)].*kStepFields[f].lanes = to;
        if (f < std::size(begin)) CopyRow(begin[f], arrays[f].size, row, to);
      }
      *of_lanes[static_cast<std::size_t>(i)].time = 0;
      of_lanes[static_cast<std::size_t>(i)].ctrl = states.ctrl + sizes.nu * row;
    }
    const std::uint64_t back = lanes::Step(*read_.model, of_lanes, options);

    // MuJoCo, as Physics::Step and Physics::StepUpToDate
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = first + i;
      PutState(states, row);
      const bool up_to_date = options.ending == lanes::Ending::kUpToDate;
      Guarded([&] {
        for (std::int32_t step = 0; step < options.substeps; ++step) api.step(model, data);
        if (up_to_date) {
          api.step1(model, data);
        } else {
          api.rne_post_constraint(model, data);
        }
      });
      rows.handed_back[row] = IsHandedBack(back, i);
      rows.warned[row] = Warned();
      for (std::size_t f = 0; f < std::size(kStepFields); ++f) {
        double* const to = RowOf(arrays[f].mujoco, arrays[f].size, row);
        if (!to) continue;
        const auto place = kStepFields[f].mujoco;
        std::copy_n(place ? (at.*place).In(data) : &at.time.In(data), arrays[f].size, to);
      }
    }
  }
}

}  // namespace rollouts
