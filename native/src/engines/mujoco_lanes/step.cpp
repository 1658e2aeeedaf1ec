// SPDX-License-Identifier: Apache-2.0
// Steps that lanes make of simulations, each in its own mjData: what asks MuJoCo of one finds there
// what mj_step would have left.
#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <iterator>
#include <memory>
#include <string_view>

#include "engines/mujoco_native.h"
#include "rollouts/lanes/step.h"

namespace rollouts {
namespace {

// The part of mjState that lanes read and write: time, qpos, qvel, act, warm start and ctrl.
constexpr int kStateOfLanes = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6;

// An array of mjData that lanes write where a task reads it.
struct WrittenArray {
  const char* name;
  DataArray array;
  Place<double*> DataPlaces::* from;
  double* lanes::Row::* to;
};
#define WRITTEN(array, name) {#name, array, &DataPlaces::name, &lanes::Row::name}
constexpr WrittenArray kWritten[] = {
    WRITTEN(kQacc, qacc),
    WRITTEN(kQfrcActuator, qfrc_actuator),
    WRITTEN(kQfrcConstraint, qfrc_constraint),
    WRITTEN(kXpos, xpos),
    WRITTEN(kXquat, xquat),
    WRITTEN(kXmat, xmat),
    WRITTEN(kXipos, xipos),
    WRITTEN(kGeomXpos, geom_xpos),
    WRITTEN(kGeomXmat, geom_xmat),
    WRITTEN(kSiteXpos, site_xpos),
    WRITTEN(kSiteXmat, site_xmat),
    WRITTEN(kSubtreeCom, subtree_com),
    WRITTEN(kCinert, cinert),
    WRITTEN(kCvel, cvel),
    WRITTEN(kSensordata, sensordata),
    WRITTEN(kTenLength, ten_length),
    WRITTEN(kTenVelocity, ten_velocity),
};
#undef WRITTEN

// Arrays that are right without being asked for: state, what no step changes, and what
// StepKind::contact_forces stands for.
constexpr std::string_view kAlwaysThere[] = {
    "time",         "qpos",      "qvel",       "act",      "ctrl", "qfrc_applied",
    "xfrc_applied", "mocap_pos", "mocap_quat", "cfrc_ext",
};

lanes::Row RowOf(mjData* data, const StepKind& kind) {
  const DataPlaces& at = Release().data;
  lanes::Row row;
  row.qpos = at.qpos.In(data);
  row.qvel = at.qvel.In(data);
  row.act = at.act.In(data);
  row.qacc_warmstart = at.qacc_warmstart.In(data);
  row.time = &at.time.In(data);
  row.ctrl = at.ctrl.In(data);
  if (kind.contact_forces) row.cfrc_ext = at.cfrc_ext.In(data);
  for (const WrittenArray& one : kWritten) {
    if ((kind.reads & one.array) != 0) row.*one.to = (at.*one.from).In(data);
  }
  return row;
}

// Width for `rows`. Lanes of 4 and 8 compute equal bits, narrower ones others, and what comes of a
// step must not depend on how many wait with it.
std::int32_t WidthFor(std::size_t rows) {
  const auto widths = lanes::Widths();
  const bool has_four = std::ranges::find(widths, 4) != widths.end();
  return rows <= 4 && has_four ? 4 : widths.front();
}

}  // namespace

std::int32_t TogetherInLanes() { return 8; }

std::int32_t CostInLanesNs(std::int32_t cost_ns) {
  // Measured: what lanes of the widest kind gain; a single one has less to do than MuJoCo.
  const std::int32_t width = lanes::Widths().front();
  const std::int32_t times = width >= 8 ? 8 : width >= 4 ? 6 : width >= 2 ? 4 : 3;
  return std::max(cost_ns / times, 1);
}

DataArrays ArrayInLanes(std::string_view name) {
  if (std::ranges::find(kAlwaysThere, name) != std::end(kAlwaysThere)) return 0;
  const auto* const found = std::ranges::find(kWritten, name, &WrittenArray::name);
  return found == std::end(kWritten) ? kBeyondLanes : found->array;
}

void Physics::UseLanes(const StepKind& kind) {
  native_->lanes = model_->WithLanes().lanes.model.get();
  native_->kind = kind;
  native_->row = RowOf(native_->data.get(), kind);
}

bool Physics::stepped_by_lanes() const { return native_->by_lanes; }

// Begins an episode: what lanes do not know is looked for once, not at every step.
void Physics::BeginAnew() {
  native_->done = false;
  native_->by_lanes = false;
  native_->own_lanes.reset();
  native_->in_lanes = native_->lanes != nullptr;
  if (native_->in_lanes && native_->own && native_->own->DiffersFromShared()) {
    native_->own_lanes = ReadOwnInLanes(model_->WithLanes().lanes.model, native_->model);
    native_->in_lanes = native_->own_lanes != nullptr;
  }
  native_->row.model = native_->own_lanes.get();
}

// True when the step that is asked for has been made.
bool Physics::FoundDone() {
  native_->by_lanes = native_->done;
  native_->done = false;
  return native_->by_lanes;
}

void Physics::SettleUpToDate(std::int32_t substeps) {
  // what derives from the positions may be that of others, which MuJoCo's first substep goes on with
  StepUpToDate(nullptr, 1);
  if (substeps <= 1) return;
  if (native_->in_lanes && !HasMujocoCallbacks()) {
    const lanes::StepOptions options{
        .substeps = substeps - 1, .ending = lanes::Ending::kUpToDate, .width = WidthFor(1)};
    native_->by_lanes = lanes::Step(*native_->lanes, {&native_->row, 1}, options) == 0;
    if (native_->by_lanes) return;
  }
  StepUpToDate(nullptr, substeps - 1);
}

std::vector<double> Physics::NumbersBesideLanes() const {
  const int beside = Release().saved_state & ~kStateOfLanes;
  std::vector<double> numbers(
      static_cast<std::size_t>(Mujoco().state_size(native_->model, beside)));
  Mujoco().get_state(native_->model, native_->data.get(), numbers.data(), beside);
  return numbers;
}

void Physics::StepTogether(std::span<const DueStep> due) {
  assert(due.size() <= kMostDue);
  // callbacks of the user's are called in MuJoCo's steps alone
  if (HasMujocoCallbacks()) return;
  std::uint64_t waiting = 0;
  for (std::size_t i = 0; i < due.size(); ++i) {
    Native& own = *due[i].physics->native_;
    if (!own.in_lanes) continue;
    std::copy_n(due[i].controls, own.num_controls, own.controls);
    waiting |= std::uint64_t{1} << i;
  }
  // as a rule all are of one model and one kind
  while (waiting != 0) {
    const Native& first = *due[static_cast<std::size_t>(std::countr_zero(waiting))].physics->native_;
    // only those that are used are written: a step may take less time than to clear all
    alignas(lanes::Row) std::array<std::byte, kMostDue * sizeof(lanes::Row)> memory;
    auto* const rows = reinterpret_cast<lanes::Row*>(memory.data());
    std::array<Native*, kMostDue> owners;
    std::size_t count = 0;
    for (std::uint64_t rest = waiting; rest != 0; rest &= rest - 1) {
      const int i = std::countr_zero(rest);
      Native& own = *due[static_cast<std::size_t>(i)].physics->native_;
      if (own.lanes != first.lanes || own.kind != first.kind) continue;
      std::construct_at(rows + count, own.row);
      owners[count++] = &own;
      waiting &= ~(std::uint64_t{1} << i);
    }
    const lanes::StepOptions options{
        .substeps = first.kind.substeps,
        .ending = first.kind.up_to_date ? lanes::Ending::kUpToDate : lanes::Ending::kAsStep,
        .width = WidthFor(count)};
    const std::uint64_t left = lanes::Step(*first.lanes, {rows, count}, options);
    for (std::size_t i = 0; i < count; ++i) owners[i]->done = (left >> i & 1) == 0;
  }
}

}  // namespace rollouts
