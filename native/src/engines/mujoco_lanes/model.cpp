// SPDX-License-Identifier: Apache-2.0
// Reads a MuJoCo model for lanes, and decides whether they step it.
#include <algorithm>
#include <iterator>
#include <mutex>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engines/mujoco_lanes/comparison.h"
#include "engines/mujoco_library.h"
#include "engines/mujoco_native.h"
#include "rollouts/lanes/step.h"

namespace rollouts {
namespace {

std::mutex warnings_mutex;
std::set<std::string> warned_of;  // models whose warning was given
std::vector<std::string> warnings;  // not taken yet

void Warn(const std::string& xml_path, const std::string& warning) {
  const std::lock_guard lock(warnings_mutex);
  if (warned_of.insert(xml_path).second) warnings.push_back(warning);
}

lanes::ModelSizes SizesOf(const mjModel* model) {
  const ModelPlaces& at = Release().model;
  lanes::ModelSizes sizes;
#define SIZE(name) sizes.name = static_cast<std::int32_t>(at.name.In(model))
  SIZE(nq), SIZE(nv), SIZE(nu), SIZE(na), SIZE(nbody), SIZE(njnt), SIZE(ngeom), SIZE(nsite);
  SIZE(ntendon), SIZE(nsensor), SIZE(nsensordata), SIZE(neq), SIZE(npair), SIZE(nexclude);
  SIZE(nmocap), SIZE(nflex), SIZE(nplugin), SIZE(nwrap), SIZE(nhistory), SIZE(ntree), SIZE(nJten);
#undef SIZE
  return sizes;
}

// The address of an array, option or other entry; null for a name that this release lacks.
const void* ReadEntry(const mjModel* model, std::string_view name) {
  // static, because one release is loaded in a process
  static const std::unordered_map<std::string_view, const ModelEntry*> entries = [] {
    std::unordered_map<std::string_view, const ModelEntry*> out;
    for (const ModelEntry& entry : Release().entries) out.emplace(entry.name, &entry);
    return out;
  }();
  const auto found = entries.find(name);
  if (found == entries.end()) return nullptr;
  if (found->second->kind == EntryKind::kArray) return Place<void*>{found->second->offset}.In(model);
  return &Place<std::uint8_t>{found->second->offset}.In(model);
}

// Tells if MuJoCo and lanes treat forces of tendon limits on bodies differently: later releases of
// MuJoCo count them into cfrc_ext, and 4.0 is the first release that lanes were compared with.
bool LimitsTendonsOtherwise(const mjModel* model) {
  constexpr int kFirstCompared = 4'000'000;
  const auto* const limited = static_cast<const std::uint8_t*>(ReadEntry(model, "tendon_limited"));
  return MujocoVersion() < kFirstCompared && limited &&
         std::any_of(limited, limited + Release().model.ntendon.In(model), [](auto one) { return one != 0; });
}

}  // namespace

lanes::ModelOrReason ReadByLanes(const mjModel* model) {
  return lanes::ReadModel(SizesOf(model), [&](const char* name) { return ReadEntry(model, name); });
}

ModelInLanes ReadInLanes(const mjModel* model, const std::string& xml_path) {
  // a callback would affect the steps that are compared
  if (HasMujocoCallbacks()) return {nullptr, "a callback of MuJoCo's was set when it was read"};
  if (LimitsTendonsOtherwise(model)) return {nullptr, "it has limited tendons, which lanes step as MuJoCo 4.0"};
  lanes::ModelOrReason read = ReadByLanes(model);
  if (!read.model) return {nullptr, std::move(read.why_not)};
  const LanesComparison compared = CompareLanes(*read.model, model);
  if (compared.num_compared == 0) {
    return {nullptr, "every step that was tried is one that lanes leave to MuJoCo"};
  }
  if (compared.difference <= kMostDifference) {
    return {std::move(read.model), "", compared.qacc_differs ? DataArrays{kQacc} : 0};
  }
  const std::string version = VersionText(MujocoVersion());
  const std::string differs = "steps of lanes differ from those of MuJoCo " + version + " by " +
                              TextOf(compared.difference) + " in " + compared.array;
  Warn(xml_path, differs + ", expected at most " + TextOf(kMostDifference) + ", with the model " +
                     xml_path + ": MuJoCo itself steps it, several times slower");
  return {nullptr, differs};
}

std::vector<std::string> TakeLanesWarnings() {
  const std::lock_guard lock(warnings_mutex);
  return std::exchange(warnings, {});
}

std::shared_ptr<const lanes::Model> ReadOwnInLanes(const std::shared_ptr<const lanes::Model>& shared,
                                                   const mjModel* model) {
  return lanes::ReadVariant(shared, SizesOf(model),
                            [&](const char* name) { return ReadEntry(model, name); });
}

const PhysicsModel::Native& PhysicsModel::WithLanes() const {
  std::call_once(native_->lanes_once, [&] {
    try {
      native_->lanes = ReadInLanes(native_->model.get(), xml_path_);
    } catch (const std::exception& error) {
      // if MuJoCo cannot step the model either, it reports that at the first step
      native_->lanes = {nullptr, std::string("steps of it fail: ") + error.what()};
    }
  });
  return *native_;
}

const std::string& PhysicsModel::why_not_lanes() const { return WithLanes().lanes.why_not; }

DataArrays PhysicsModel::unequal_in_lanes() const { return WithLanes().lanes.unequal; }

}  // namespace rollouts
