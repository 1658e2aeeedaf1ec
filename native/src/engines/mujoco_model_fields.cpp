// SPDX-License-Identifier: Apache-2.0
#include "mujoco_model_fields.h"

#include <mujoco/mjxmacro.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <type_traits>

namespace rollouts {
namespace {

// How mj_setConst uses an array: its header's table. "The first group that uses it" decides
// whether what an array held before matters.
struct ConstantsUse {
  std::string_view name;
  bool read = false;
  bool written = false;
};

constexpr ConstantsUse UseOf(std::string_view name, int fixed, int kin0, int inert0, int spring) {
  const int first = fixed ? fixed : kin0 ? kin0 : inert0 ? inert0 : spring;
  return {name, (first & mjSC_IN) != 0, ((fixed | kin0 | inert0 | spring) & mjSC_OUT) != 0};
}

constexpr ConstantsUse kConstantsUses[] = {
#define X(name, fixed, kin0, inert0, spring) UseOf(#name, fixed, kin0, inert0, spring),
    MJSETCONST_ARRAYS
#undef X
};

ConstantsUse FindUse(std::string_view name) {
  const auto found = std::find_if(std::begin(kConstantsUses), std::end(kConstantsUses),
                                  [&](const ConstantsUse& use) { return use.name == name; });
  return found == std::end(kConstantsUses) ? ConstantsUse{} : *found;
}

// Integers that are values; all others say what the model is made of. Dimensions of contacts are
// not among them, because MuJoCo trusts them.
constexpr std::string_view kIntegerValues[] = {
    "geom_contype", "geom_conaffinity",   "geom_priority",     "eq_active0",
    "jnt_limited",  "jnt_actfrclimited",  "tendon_limited",    "tendon_actfrclimited",
    "geom_group",   "actuator_ctrllimited", "actuator_forcelimited", "opt.iterations",
    "opt.ls_iterations", "opt.noslip_iterations", "opt.ccd_iterations", "opt.disableflags",
};

// Beginnings of the names of assets' geometry, to which search trees and other arrays belong,
// and of delays, which size buffers.
constexpr std::string_view kStructures[] = {
    "mesh_", "oct_", "skin_", "bvh_", "flex_vert", "flex_node", "flex_texcoord", "flexedge_",
    "efm0_", "actuator_delay", "sensor_delay", "sensor_interval",
};

ModelField::Use UseAs(const ModelField& field) {
  const std::string_view name = field.name;
  const auto is_name = [&](std::string_view one) { return name == one; };
  const auto begins_name = [&](std::string_view one) { return name.starts_with(one); };
  const bool integer = field.type == ModelValue::kInt || field.type == ModelValue::kBool;
  if (field.type == ModelValue::kOther ||
      std::any_of(std::begin(kStructures), std::end(kStructures), begins_name) ||
      (integer && std::none_of(std::begin(kIntegerValues), std::end(kIntegerValues), is_name))) {
    return ModelField::Use::kStructure;
  }
  const ConstantsUse constants = FindUse(name);
  if (constants.written && !constants.read) return ModelField::Use::kDerived;
  return ModelField::Use::kValues;
}

template <typename T>
constexpr ModelValue ValueType() {
  if constexpr (std::is_same_v<T, double>) return ModelValue::kDouble;
  if constexpr (std::is_same_v<T, float>) return ModelValue::kFloat;
  if constexpr (std::is_same_v<T, int>) return ModelValue::kInt;
  if constexpr (std::is_same_v<T, mjtBool>) return ModelValue::kBool;
  return ModelValue::kOther;
}

template <typename T>
ModelField MakeField(const char* name, std::size_t offset, std::int64_t rows, std::int64_t columns,
                     bool flat) {
  ModelField field{.name = name,
                   .type = ValueType<T>(),
                   .offset = offset,
                   .value_bytes = sizeof(T),
                   .rows = rows,
                   .columns = columns,
                   .flat = flat};
  field.use = UseAs(field);
  const ConstantsUse constants = FindUse(name);
  field.makes_constants = constants.read;
  field.is_constant = constants.written;
  return field;
}

// An entry of mjOption, all of which mj_setConst may read.
template <typename T>
ModelField MakeOption(const char* name, std::size_t offset, std::int64_t size) {
  ModelField field = MakeField<T>(name, offsetof(mjModel, opt) + offset, size, 1, true);
  field.inside = true;
  field.makes_constants = true;
  return field;
}

// What mj_setConst writes beside arrays.
template <typename T>
ModelField MakeDerived(const char* name, std::size_t offset, std::int64_t size) {
  ModelField field = MakeField<T>(name, offset, size, 1, true);
  field.inside = true;
  field.use = ModelField::Use::kDerived;
  field.is_constant = true;
  return field;
}

}  // namespace

std::vector<ModelField> ModelFields(const mjModel& model) {
  std::vector<ModelField> fields;
  const mjModel* const m = &model;
  MJMODEL_POINTERS_PREAMBLE(m)
#define X(type, name, nr, nc)                                                              \
  fields.push_back(MakeField<type>(#name, offsetof(mjModel, name), m->nr, nc, #nc[0] == '1' && \
                                                                               #nc[1] == 0));
  MJMODEL_POINTERS
#undef X
  std::erase_if(fields, [](const ModelField& field) { return field.bytes() == 0; });

#define X(type, name, size) \
  fields.push_back(MakeOption<type>("opt." #name, offsetof(mjOption, name), size));
#define XVEC X
  MJOPTION_FIELDS
#undef XVEC
#undef X

#define X(name, size)                                                                     \
  fields.push_back(MakeDerived<mjtNum>("stat." #name,                                     \
                                       offsetof(mjModel, stat) + offsetof(mjStatistic, name), size));
#define XVEC X
  MJSTATISTIC_FIELDS
#undef XVEC
#undef X

#define X(name) \
  fields.push_back(MakeDerived<decltype(model.name)>(#name, offsetof(mjModel, name), 1));
  MJSETCONST_SCALARS
#undef X
  return fields;
}

}  // namespace rollouts
