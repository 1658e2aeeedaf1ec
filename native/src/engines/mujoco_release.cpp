// SPDX-License-Identifier: Apache-2.0
#include "mujoco_release.h"

#include <algorithm>
#include <iterator>

namespace rollouts {
namespace {

using enum EntryKind;
using enum ModelValue;

#include "mujoco_releases/mujoco_3_14.inc"
#include "mujoco_releases/mujoco_3_15.inc"
#include "mujoco_releases/mujoco_3_16.inc"
#include "mujoco_releases/mujoco_3_17.inc"
#include "mujoco_releases/mujoco_4_0.inc"

constexpr const MujocoRelease* kReleases[] = {
    &mujoco_3_14::kRelease, &mujoco_3_15::kRelease, &mujoco_3_16::kRelease,
    &mujoco_3_17::kRelease, &mujoco_4_0::kRelease,
};

constexpr std::uintptr_t kArrayAlignment = 64;  // bytes; of the arrays in a buffer

std::uintptr_t Aligned(std::uintptr_t address) {
  return (address + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
}

}  // namespace

const MujocoRelease* FindRelease(int version) {
  // a patch release has the table of its minor release: LayoutFault finds differing structs
  const auto found = std::find_if(
      std::begin(kReleases), std::end(kReleases),
      [&](const MujocoRelease* release) { return release->number == version / 1000 * 1000; });
  return found == std::end(kReleases) ? nullptr : *found;
}

std::span<const MujocoRelease* const> MujocoReleases() { return kReleases; }

std::string LayoutFault(const MujocoRelease& release, const mjModel* model) {
  const auto begin = reinterpret_cast<std::uintptr_t>(release.model.buffer.In(model));
  const auto end = begin + static_cast<std::uintptr_t>(release.model.nbuffer.In(model));
  // arrays follow each other in one buffer, so that each shows whether the offsets before it are
  // right
  std::uintptr_t next = begin;
  for (const ModelEntry& entry : release.entries) {
    if (entry.kind != EntryKind::kArray) continue;
    const auto values = reinterpret_cast<std::uintptr_t>(Place<void*>{entry.offset}.In(model));
    const std::int64_t count = entry.rows.In(model) * entry.columns.In(model);
    next = Aligned(next);
    // with a wrong offset, any number may be read: numbers are checked before they are used
    if (values != next || count < 0 || next > end) return std::string("mjModel.") + entry.name;
    next += static_cast<std::uintptr_t>(count * entry.value_bytes);
  }
  // later releases reserve additional bytes for the alignment
  return next <= end && end - next < kArrayAlignment ? "" : "mjModel.nbuffer";
}

std::string LayoutFault(const MujocoRelease& release, const mjModel* model, const mjData* data) {
  const DataPlaces& at = release.data;
  const auto begin = reinterpret_cast<std::uintptr_t>(at.buffer.In(data));
  const auto end = begin + static_cast<std::uintptr_t>(at.nbuffer.In(data));
  // mjData's arrays have no fixed order, but lie in its buffer
  const auto is_inside = [&](const double* values) {
    const auto first = reinterpret_cast<std::uintptr_t>(values);
    return first >= begin && first <= end && first % kArrayAlignment == 0;
  };
#define X(type, name) \
  if (!is_inside(at.name.In(data))) return "mjData." #name;
  ROLLOUTS_DATA_ARRAYS(X)
#undef X
  const auto nq = static_cast<std::uintptr_t>(release.model.nq.In(model));
  const auto first = reinterpret_cast<std::uintptr_t>(at.qpos.In(data));
  // positions must end within the buffer
  if (end - first < nq * sizeof(double)) return "mjData.qpos";
  // mj_makeData leaves the state of mj_resetData
  const double* const start = release.model.qpos0.In(model);
  const bool is_reset = std::equal(start, start + release.model.nq.In(model), at.qpos.In(data));
  if (!is_reset) return "mjData.qpos";
  if (at.time.In(data) != 0) return "mjData.time";
  return std::any_of(std::begin(at.warning.In(data)), std::end(at.warning.In(data)),
                     [](const MujocoWarning& warning) { return warning.number != 0; })
             ? "mjData.warning"
             : "";
}

}  // namespace rollouts
