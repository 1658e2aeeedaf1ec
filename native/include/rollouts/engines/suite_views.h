// SPDX-License-Identifier: Apache-2.0
// Observations and starts of the DeepMind Control Suite's tasks, on the host and in kernels.
#pragma once

#include "rollouts/engines/observation_writer.h"

namespace rollouts {

// Fields of a model that tasks draw. The last two exist only on the host: mujoco_warp's worlds
// share them, or nothing reads them there.
enum class DrawnField : std::int32_t {
  kGeomPos,
  kSitePos,
  kBodyPos,
  kBodyQuat,
  kJntStiffness,
  kLightPos,
  kWrapPrm,
};

// Parts of an observation, as dm_control names them.
struct ObservationParts {
  struct Part {
    const char* name;
    std::int32_t columns;
    std::int32_t first;  // element
  };
  static constexpr std::int32_t kMost = 12;

  std::int32_t count = 0;  // may exceed kMost
  Part parts[kMost] = {};
};

// A flat observation and, on request, the names and sizes of its parts.
class NamedObservation : public ObservationWriter {
 public:
  static constexpr std::int32_t kScalar = 0;   // a part of one number, of shape ()
  static constexpr std::int32_t kVector = -1;  // shape (n); positive: (n / columns, columns)

  // Either pointer may be null.
  ROLLOUTS_HD NamedObservation(std::uint8_t* out, bool single, ObservationParts* parts = nullptr)
      : ObservationWriter(out, single), parts_(parts) {}

  // Begins a named part, which consists of all numbers that are put before the next Begin.
  ROLLOUTS_HD void Begin(const char* name, std::int32_t columns = kVector) {
    if (!parts_) return;
    if (parts_->count < ObservationParts::kMost) parts_->parts[parts_->count] = {name, columns, size()};
    ++parts_->count;
  }
  ROLLOUTS_HD void Scalar(const char* name, double value) {
    Begin(name, kScalar);
    Put(value);
  }
  template <typename Number>
  ROLLOUTS_HD void Vector(const char* name, const Number* values, std::int32_t count) {
    Begin(name);
    Put(values, count);
  }

 private:
  ObservationParts* const parts_;
};

}  // namespace rollouts
