// SPDX-License-Identifier: Apache-2.0
// The arrays of an mjModel and the entries of its options, by name: their places and sizes, and
// whether a simulation may own a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mujoco_release.h"
#include "rollouts/engines/mujoco_physics.h"

namespace rollouts {

// A field of one model. Names are string literals.
struct ModelField {
  enum class Use : std::uint8_t {
    kValues,     // numbers of the physics: may be owned
    kDerived,    // computed by mj_setConst from others
    kStructure,  // types, addresses, sizes, names, geometry of assets
  };

  const char* name = nullptr;  // as in mjModel; "opt.gravity" for entries of mjOption
  ModelValue type = ModelValue::kDouble;
  Use use = Use::kStructure;
  bool inside = false;         // the values lie in the struct itself, not behind a pointer
  bool makes_constants = false;  // mj_setConst reads it
  bool is_constant = false;      // mj_setConst writes it
  std::size_t offset = 0;      // in the struct: of the pointer, or of the values
  std::size_t value_bytes = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool flat = false;           // one axis, without columns

  std::size_t bytes() const { return value_bytes * static_cast<std::size_t>(rows * columns); }

  // Tells if it is a single value, without an axis.
  bool scalar() const { return inside && rows == 1; }

  std::uint8_t* DataIn(mjModel* model) const {
    std::uint8_t* const at = reinterpret_cast<std::uint8_t*>(model) + offset;
    return inside ? at : *reinterpret_cast<std::uint8_t**>(at);
  }
  const std::uint8_t* DataIn(const mjModel* model) const {
    return DataIn(const_cast<mjModel*>(model));
  }
  // Sets the field's pointer, where its values are behind one.
  void PointTo(mjModel* model, const std::uint8_t* data) const {
    *reinterpret_cast<const std::uint8_t**>(reinterpret_cast<std::uint8_t*>(model) + offset) =
        data;
  }
};

// The field of that name; null where the model has none, or an empty one.
const ModelField* FieldNamed(const std::vector<ModelField>& fields, std::string_view name);

// Every array of the model that is not empty, all options, and the other entries of the struct
// that mj_setConst writes.
std::vector<ModelField> ModelFields(const mjModel* model);

}  // namespace rollouts
