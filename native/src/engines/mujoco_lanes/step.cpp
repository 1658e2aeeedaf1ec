// SPDX-License-Identifier: Apache-2.0
// Steps of simulations that lanes make, each in its own mjData: MuJoCo's functions then find there
// what mj_step would have left.
#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

#include "engines/mujoco_native.h"
#include "rollouts/lanes/step.h"

namespace rollouts {
namespace {

// The part of mjState that lanes read and write: time, qpos, qvel, act, warm start and ctrl.
constexpr int kStateOfLanes = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6;

// An array of mjData that lanes write if a task reads it.
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

// Arrays that are always right: the state, arrays that no step changes, and those that
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

// The width for `rows`. Lanes of 4 and 8 compute equal bits, narrower ones compute different bits,
// and the result of a step must not depend on how many others are due with it.
std::int32_t WidthFor(std::size_t rows) {
  const auto widths = lanes::Widths();
  const bool has_four = std::ranges::find(widths, 4) != widths.end();
  return rows <= 4 && has_four ? 4 : widths.front();
}

// Steps that are due in several simulations. The array is not cleared in advance, because that may
// take longer than a step.
class DueInLanes {
 public:
  // Adds a step. All arguments are borrowed; `done` becomes true when the step was made.
  void Add(const lanes::Model& model, const lanes::Row& row, const StepKind& kind, bool& done) {
    due_[count_++] = {&model, &row, &kind, &done};
  }
  // Makes the steps, those with equal model and kind at once. As a rule all are equal.
  void Step() const {
    std::uint64_t waiting = count_ == 0 ? 0 : ~std::uint64_t{0} >> (64 - count_);
    while (waiting != 0) waiting &= ~StepLikeFirst(waiting);
  }

 private:
  struct Due {
    const lanes::Model* model;
    const lanes::Row* row;
    const StepKind* kind;
    bool* done;
  };

  // Makes the first waiting step and all that are like it; returns them as bits.
  std::uint64_t StepLikeFirst(std::uint64_t waiting) const {
    const Due& first = due_[static_cast<std::size_t>(std::countr_zero(waiting))];
    alignas(lanes::Row) std::array<std::byte, Physics::kMostDue * sizeof(lanes::Row)> memory;
    auto* const rows = reinterpret_cast<lanes::Row*>(memory.data());
    std::array<bool*, Physics::kMostDue> done;
    std::size_t count = 0;
    std::uint64_t alike = 0;
    for (std::uint64_t rest = waiting; rest != 0; rest &= rest - 1) {
      const int i = std::countr_zero(rest);
      const Due& one = due_[static_cast<std::size_t>(i)];
      if (one.model != first.model || *one.kind != *first.kind) continue;
      std::construct_at(rows + count, *one.row);
      done[count++] = one.done;
      alike |= std::uint64_t{1} << i;
    }
    const lanes::StepOptions options{
        .substeps = first.kind->substeps,
        .ending = first.kind->up_to_date ? lanes::Ending::kUpToDate : lanes::Ending::kAsStep,
        .width = WidthFor(count)};
    const std::uint64_t left = lanes::Step(*first.model, {rows, count}, options);
    for (std::size_t i = 0; i < count; ++i) *done[i] = (left >> i & 1) == 0;
    return alike;
  }

  std::array<Due, Physics::kMostDue> due_;
  std::size_t count_ = 0;
};

}  // namespace

std::int32_t TogetherInLanes() { return 8; }

std::int32_t CostInLanesNs(std::int32_t cost_ns) {
  // The measured gain of the widest lanes; even a single lane gains, because it has less to do than
  // MuJoCo.
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

// Begins an episode: conditions that exclude lanes are checked once, not at every step.
void Physics::BeginAnew() {
  native_->done = false;
  native_->at_rest = false;
  native_->by_lanes = false;
  native_->own_lanes.reset();
  native_->in_lanes = native_->lanes != nullptr;
  if (native_->in_lanes && native_->own && native_->own->DiffersFromShared()) {
    native_->own_lanes = ReadOwnInLanes(model_->WithLanes().lanes.model, native_->model);
    native_->in_lanes = native_->own_lanes != nullptr;
  }
  native_->row.model = native_->own_lanes.get();
}

// Tells if the requested step was made already.
bool Physics::FoundDone() {
  native_->by_lanes = native_->done;
  native_->done = false;
  return native_->by_lanes;
}

void Physics::SettleUpToDate(std::int32_t substeps) {
  const DueRest alone{this, substeps};
  if (!native_->at_rest) SettleTogether({&alone, 1});
  native_->by_lanes = std::exchange(native_->at_rest, false);
  if (!native_->by_lanes) StepUpToDate(nullptr, substeps);
}

void Physics::SettleTogether(std::span<const DueRest> due) {
  assert(due.size() <= kMostDue);
  if (HasMujocoCallbacks()) return;
  DueInLanes in_lanes;
  std::array<StepKind, kMostDue> kinds;
  for (std::size_t i = 0; i < due.size(); ++i) {
    Native& own = *due[i].physics->native_;
    if (!own.in_lanes) continue;
    kinds[i] = own.kind;
    kinds[i].substeps = due[i].substeps;
    kinds[i].up_to_date = true;
    in_lanes.Add(*own.lanes, own.row, kinds[i], own.at_rest);
  }
  in_lanes.Step();
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
  // a user's callbacks are called only in MuJoCo's own steps
  if (HasMujocoCallbacks()) return;
  DueInLanes in_lanes;
  for (const DueStep& one : due) {
    Native& own = *one.physics->native_;
    if (!own.in_lanes) continue;
    std::copy_n(one.controls, own.num_controls, own.controls);
    in_lanes.Add(*own.lanes, own.row, own.kind, own.done);
  }
  in_lanes.Step();
}

}  // namespace rollouts
