// SPDX-License-Identifier: Apache-2.0
// Fields of models by name, and those that a simulation owns; mujoco_physics.cpp makes the steps.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "mujoco_library.h"
#include "mujoco_native.h"
#include "rollouts/support/errors.h"
#include "rollouts/support/state.h"

namespace rollouts {
namespace {

constexpr std::int32_t kWeld = 1;  // mjtEq

PhysicsModel::Field Describe(const ModelField& field) {
  PhysicsModel::Field described;
  described.type = field.type;
  described.size = static_cast<std::size_t>(field.rows * field.columns);
  described.shape = {field.rows};
  // has NumPy's shape: (rows,), (rows, columns), or () for an option
  if (!field.flat) described.shape.push_back(field.columns);
  if (field.scalar()) described.shape.clear();
  return described;
}

// Calls `visit` with a value of the field's C++ type.
template <typename Visit>
void VisitType(ModelValue type, Visit&& visit) {
  switch (type) {
    case ModelValue::kDouble: visit(double{}); break;
    case ModelValue::kFloat: visit(float{}); break;
    case ModelValue::kInt: visit(std::int32_t{}); break;
    case ModelValue::kBool: visit(false); break;
    case ModelValue::kOther: break;
  }
}

// The indices in a model's positions where quaternions begin.
std::vector<std::size_t> QuaternionsOfPositions(const mjModel* model) {
  const ModelPlaces& at = Release().model;
  std::vector<std::size_t> firsts;
  for (std::int64_t joint = 0; joint < at.njnt.In(model); ++joint) {
    const auto first = static_cast<std::size_t>(at.jnt_qposadr.In(model)[joint]);
    const std::int32_t type = at.jnt_type.In(model)[joint];
    // a free joint's quaternion follows its three coordinates
    if (type == kFreeJoint) firsts.push_back(first + 3);
    if (type == kBallJoint) firsts.push_back(first);
  }
  return firsts;
}

}  // namespace

std::vector<std::size_t> QuaternionsOf(const PhysicsModel& shared, const std::string& name) {
  constexpr std::string_view kOfPositions[] = {"qpos0", "qpos_spring", "key_qpos"};
  constexpr std::size_t kInWeld = 6;  // a weld's data has an anchor and a place before it
  const auto* const of_positions =
      std::find(std::begin(kOfPositions), std::end(kOfPositions), name);
  const bool has_positions = of_positions != std::end(kOfPositions);
  // most fields have no quaternions, which their names show
  if (!name.ends_with("quat") && !has_positions && name != "eq_data") return {};
  const mjModel* const model = ModelOf(shared);
  const std::vector<ModelField> fields = ModelFields(model);
  const ModelField& field = FindField(fields, name, shared.xml_path());
  const auto size = static_cast<std::size_t>(field.rows * field.columns);
  std::vector<std::size_t> firsts;
  if (name.ends_with("quat")) {
    for (std::size_t i = 0; i + 4 <= size; i += 4) firsts.push_back(i);
  } else if (has_positions) {
    const auto row = static_cast<std::size_t>(Release().model.nq.In(model));
    for (std::size_t key = 0; key < size; key += row) {
      for (const std::size_t first : QuaternionsOfPositions(model)) firsts.push_back(key + first);
    }
  } else {
    const auto* const types =
        reinterpret_cast<const std::int32_t*>(FieldNamed(fields, "eq_type")->DataIn(model));
    const auto row = static_cast<std::size_t>(field.columns);
    for (std::size_t i = 0; i * row < size; ++i) {
      if (types[i] == kWeld) firsts.push_back(i * row + kInWeld);
    }
  }
  return firsts;
}

PhysicsModel::Field PhysicsModel::SettableField(const std::string& name) const {
  return Describe(FindField(native_->fields, name, xml_path_));
}

std::vector<std::string> PhysicsModel::SettableFields() const {
  std::vector<std::string> names;
  for (const ModelField& field : native_->fields) {
    // only values can be set; the list has the other fields for the messages that refuse them
    if (field.use == ModelField::Use::kValues) names.push_back(field.name);
  }
  return names;
}

ModelCopy& Physics::OwnedModel() {
  // most simulations never come here: they change nothing and share the model
  if (!native_->own) {
    const PhysicsModel::Native& shared = *model_->native_;
    native_->own = std::make_unique<ModelCopy>(shared.model.get(), shared.fields);
    native_->model = native_->own->model();
  }
  return *native_->own;
}

std::span<std::uint8_t> Physics::OwnBytes(const std::string& name, ModelValue type) {
  const ModelField& field = FindField(model_->native_->fields, name, model_->xml_path());
  // the caller writes through a T*, which converts nothing
  if (field.type != type) {
    throw SpecError("'" + name + "' of the model " + model_->xml_path() +
                    " has values of another type");
  }
  // `keep`, because the caller holds the address
  const std::span<std::uint8_t> values = OwnedModel().Own(field, /*keep=*/true);
  UpdateModelView();
  return values;
}

void Physics::UpdateModelView() { model_view_ = ViewOfModel(native_->model); }

bool Physics::SetField(const std::string& name, std::span<const double> values) {
  const ModelField& field = FindField(model_->native_->fields, name, model_->xml_path());
  // the address may change at the next change
  const std::span<std::uint8_t> bytes = OwnedModel().Own(field, /*keep=*/false);
  UpdateModelView();
  VisitType(field.type, [&](auto zero) {
    using T = decltype(zero);
    std::transform(values.begin(), values.end(), reinterpret_cast<T*>(bytes.data()),
                   [](double value) { return static_cast<T>(value); });
  });
  return field.makes_constants;
}

std::vector<double> Physics::ReadField(const std::string& name, bool of_file) const {
  const PhysicsModel::Native& shared = *model_->native_;
  const ModelField& field = FindField(shared.fields, name, model_->xml_path());
  // the shared model has the values of the file
  const mjModel* const model = of_file ? shared.model.get() : native_->model;
  std::vector<double> values(static_cast<std::size_t>(field.rows * field.columns));
  VisitType(field.type, [&](auto zero) {
    const auto* const data = reinterpret_cast<const decltype(zero)*>(field.DataIn(model));
    std::copy_n(data, values.size(), values.begin());
  });
  return values;
}

std::vector<std::pair<std::string, std::span<const std::uint8_t>>> OwnFieldsIn(
    StateReader& reader) {
  Physics::ReadNumbers(reader);
  return ModelCopy::ReadSaved(reader);
}

std::vector<std::uint8_t> BinaryOf(const PhysicsModel& shared) {
  const MujocoApi& api = Mujoco();
  const mjModel* const model = ModelOf(shared);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(api.size_model(model)));
  const auto size = static_cast<std::int64_t>(bytes.size());
  Guarded([&] { api.save_model(model, nullptr, bytes.data(), size); });
  return bytes;
}

void Physics::DeriveConstants() {
  if (!native_->own) return;  // the constants are those of the shared model
  try {
    native_->own->DeriveConstants(native_->data.get());
  } catch (...) {
    UpdateModelView();  // the copies are gone, so their addresses are invalid
    throw;
  }
  UpdateModelView();
}

void Physics::RestoreModel() {
  if (!native_->own) return;
  native_->own->Restore();
  UpdateModelView();
}

void Physics::SaveOwn(StateWriter& writer) const {
  if (native_->own) {
    native_->own->Save(writer);
  } else {
    // writes the same as ModelCopy::Save with no fields
    writer.Put(std::uint64_t{0});
  }
}

void Physics::LoadOwn(StateReader& reader) {
  // there are no own fields before or after, so no copy is made
  if (!native_->own && ModelCopy::IsEmpty(reader)) {
    reader.Get<std::uint64_t>();
    return;
  }
  ModelCopy& own = OwnedModel();
  try {
    own.Load(reader, native_->data.get());
  } catch (...) {
    UpdateModelView();  // copies may be gone, so their addresses are invalid
    throw;
  }
  UpdateModelView();
}

}  // namespace rollouts
