// SPDX-License-Identifier: Apache-2.0
#include "mujoco_model_fields.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "mujoco_lib.h"

namespace rollouts {
namespace {

// Integer fields that are values; all others describe the structure. Dimensions of contacts are not
// among them, because MuJoCo trusts them.
constexpr std::string_view kIntegerValues[] = {
    "geom_contype", "geom_conaffinity",   "geom_priority",     "eq_active0",
    "jnt_limited",  "jnt_actfrclimited",  "tendon_limited",    "tendon_actfrclimited",
    "geom_group",   "actuator_ctrllimited", "actuator_forcelimited", "opt.iterations",
    "opt.ls_iterations", "opt.noslip_iterations", "opt.ccd_iterations", "opt.disableflags",
};

// Beginnings of the names of fields of assets' geometry, which search trees and other arrays depend
// on, and of delays, which determine sizes of buffers.
constexpr std::string_view kStructures[] = {
    "mesh_", "oct_", "skin_", "bvh_", "flex_vert", "flex_node", "flex_texcoord", "flexedge_",
    "efm0_", "actuator_delay", "sensor_delay", "sensor_interval",
};

ModelField::Use UseAs(const ModelEntry& entry) {
  const std::string_view name = entry.name;
  const auto is_name = [&](std::string_view one) { return name == one; };
  const auto begins_name = [&](std::string_view one) { return name.starts_with(one); };
  const bool integer = entry.type == ModelValue::kInt || entry.type == ModelValue::kBool;
  // the table's kind decides first, then types and names, then what mj_setConst does with the field
  if (entry.kind == EntryKind::kDerived) return ModelField::Use::kDerived;
  if (entry.type == ModelValue::kOther ||
      std::any_of(std::begin(kStructures), std::end(kStructures), begins_name) ||
      (integer && std::none_of(std::begin(kIntegerValues), std::end(kIntegerValues), is_name))) {
    return ModelField::Use::kStructure;
  }
  // only written by mj_setConst: the next call would overwrite a value that was set
  if (entry.written && !entry.read) return ModelField::Use::kDerived;
  return ModelField::Use::kValues;
}

}  // namespace

const ModelField* FieldNamed(const std::vector<ModelField>& fields, std::string_view name) {
  const auto field = std::find_if(fields.begin(), fields.end(),
                                  [&](const ModelField& one) { return name == one.name; });
  return field == fields.end() ? nullptr : &*field;
}

std::vector<ModelField> ModelFields(const mjModel* model) {
  std::vector<ModelField> fields;
  for (const ModelEntry& entry : Release().entries) {
    const ModelField field{.name = entry.name,
                           .type = entry.type,
                           .use = UseAs(entry),
                           .inside = entry.kind != EntryKind::kArray,
                           .makes_constants = entry.read,
                           .is_constant = entry.written,
                           .offset = entry.offset,
                           .value_bytes = static_cast<std::size_t>(entry.value_bytes),
                           .rows = entry.rows.In(model),
                           .columns = entry.columns.In(model),
                           .flat = entry.columns.times == 1 && entry.columns.size < 0};
    // an empty array has nothing to set
    if (field.bytes() > 0) fields.push_back(field);
  }
  return fields;
}

}  // namespace rollouts
