// SPDX-License-Identifier: Apache-2.0
// Facts about a header's task that the pool on mujoco_warp needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rollouts/engines/mujoco_views.h"
#include "rollouts/support/options.h"

namespace rollouts {

struct TaskFacts {
  std::string type;                   // the task's type, as kernels name it
  std::vector<std::uint8_t> task;     // plain data, made for a model; empty unless requested
  std::vector<std::uint8_t> configs;  // as in DeviceLayout, of the task's own options
  std::int32_t config_bytes = 0;
  Options own_options;  // names of the task's own options, with their defaults
  DataArrays reads = 0;
  bool contact_forces = false;  // whether some environment reads contact forces
  std::int32_t frame_skip = 1;  // substeps of a step

  // The members below are for dm_control's tasks.
  struct ModelValue {
    std::string field;
    std::int32_t at;
    double value;
  };
  bool is_suite = false;
  std::string draws;  // fields of the model that each episode draws, with ", " between them
  bool is_apart = false;  // this and the next are as in suite_task.h
  bool places = false;
  std::int32_t substeps_to_rest = 0;
  std::vector<ModelValue> changes;  // changes of values in the model's file
};

}  // namespace rollouts
