// SPDX-License-Identifier: Apache-2.0
#include "rollouts/envs/mujoco/model_changes.h"

#include <cmath>
#include <limits>
#include <utility>

#include "engines/mujoco_library.h"
#include "rollouts/support/errors.h"
#include "rollouts/support/state.h"

namespace rollouts {
namespace {

std::string ShapeText(const PhysicsModel::Field& field) {
  std::string text;
  for (const std::int64_t size : field.shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "(" + text + (field.shape.size() == 1 ? ",)" : ")");
}

[[noreturn]] void Refuse(const ModelOverride& one, const std::string& why) {
  throw SpecError("model field '" + one.field + "' " + why);
}

// Checks int32 and bool fields, whose values are given as doubles like all others.
void CheckWhole(const ModelOverride& one, const PhysicsModel::Field& field) {
  const bool flag = field.type == ModelValue::kBool;
  constexpr double kMost = std::numeric_limits<std::int32_t>::max();
  for (const double value : one.low) {
    if (value != std::floor(value) || value < (flag ? 0 : -kMost) || value > (flag ? 1 : kMost)) {
      Refuse(one, "has the value " + std::to_string(value) + ", expected " +
                      (flag ? "0 or 1" : "whole numbers of 32 bits"));
    }
  }
  if (one.drawn()) Refuse(one, "has whole numbers, which are not drawn between bounds");
}

// Checks all that can be wrong with values, before any simulation gets them.
void CheckOne(const PhysicsModel& model, const ModelOverride& one) {
  // throws for fields that do not exist, or that may not be set
  const PhysicsModel::Field field = model.SettableField(one.field);
  if (one.low.size() != field.size || (one.drawn() && one.high.size() != field.size)) {
    Refuse(one, "gets " + std::to_string(one.low.size()) + " values, the model " +
                    model.xml_path() + " has " + std::to_string(field.size) + " of them, shape " +
                    ShapeText(field));
  }
  for (std::size_t i = 0; i < one.low.size(); ++i) {
    const double high = one.drawn() ? one.high[i] : one.low[i];
    if (!std::isfinite(one.low[i]) || !std::isfinite(high)) {
      Refuse(one, "has values that are not finite, the first is element " + std::to_string(i));
    }
    // equal bounds mean a value, for which nothing is drawn
    if (one.low[i] > high) {
      Refuse(one, "has a low above its high, first in element " + std::to_string(i) + ": " +
                      std::to_string(one.low[i]) + " and " + std::to_string(high));
    }
    if (one.field == "opt.timestep" && one.low[i] <= 0) Refuse(one, "must be positive");
  }
  if (field.type == ModelValue::kInt || field.type == ModelValue::kBool) CheckWhole(one, field);
}

void PutValues(StateWriter& writer, const std::vector<double>& values) {
  writer.Put(static_cast<std::uint64_t>(values.size()));
  for (const double value : values) writer.Put(value);
}

std::vector<double> GetValues(StateReader& reader) {
  const auto size = reader.Get<std::uint64_t>();
  // read one by one, so that with a damaged size the bytes end before much memory is allocated
  std::vector<double> values;
  for (std::uint64_t i = 0; i < size; ++i) values.push_back(reader.Get<double>());
  return values;
}

// Normalises drawn rotations: numbers from a box are no rotation and would silently scale the
// vectors that they turn. Given rotations are left to MuJoCo.
void MakeRotations(const PhysicsModel& model, const ModelOverride& one,
                   std::vector<double>& values) {
  constexpr double kSmallest = 1e-15;  // mjMINVAL
  for (const std::size_t first : QuaternionsOf(model, one.field)) {
    double* const quat = values.data() + first;
    const auto drawn = [&](std::size_t i) { return one.high[i] > one.low[i]; };
    if (!drawn(first) && !drawn(first + 1) && !drawn(first + 2) && !drawn(first + 3)) continue;
    const double length = std::sqrt(quat[0] * quat[0] + quat[1] * quat[1] + quat[2] * quat[2] +
                                    quat[3] * quat[3]);
    // a zero vector becomes no rotation, as in mju_normalize4
    constexpr double kNone[] = {1, 0, 0, 0};
    for (int i = 0; i < 4; ++i) quat[i] = length < kSmallest ? kNone[i] : quat[i] / length;
  }
}

}  // namespace

void ModelChanges::Check(const PhysicsModel& model, const ModelOverrides& overrides) {
  for (const ModelOverride& one : overrides) CheckOne(model, one);
}

ModelArray ModelChanges::Read(const Physics& physics, const std::string& field,
                              bool of_file) {
  const PhysicsModel::Field known = physics.model().SettableField(field);
  using Type = ModelArray::Type;
  const Type type = known.type == ModelValue::kFloat  ? Type::kFloat
                    : known.type == ModelValue::kInt  ? Type::kInt
                    : known.type == ModelValue::kBool ? Type::kBool
                                                      : Type::kDouble;
  return {type, known.shape, physics.ReadField(field, of_file)};
}

void ModelChanges::Set(ModelOverrides overrides) {
  overrides_ = std::move(overrides);
  // the running episode keeps its values; the next one begins with these
  in_place_ = false;
}

void ModelChanges::BeginEpisode(Physics& physics, Rng& rng) {
  bool drawn = false;
  for (const ModelOverride& one : overrides_) drawn |= one.drawn();
  // nothing new, and nothing to draw: the model has its values already
  if (in_place_ && !drawn) [[likely]] return;
  in_place_ = false;
  // a field that is not named any more gets the file's values
  physics.RestoreModel();
  bool makes_constants = false;
  for (const ModelOverride& one : overrides_) {
    std::vector<double> values = one.low;
    for (std::size_t i = 0; i < one.high.size(); ++i) {
      // drawn in the order of fields and elements, because each draw advances the episode's stream
      if (one.high[i] > one.low[i]) values[i] = rng.Uniform(one.low[i], one.high[i]);
    }
    if (one.drawn()) MakeRotations(physics.model(), one, values);
    makes_constants |= physics.SetField(one.field, values);
  }
  // derived once, after all fields are set
  if (makes_constants) physics.DeriveConstants();
  // set last, so that after an exception the next episode tries again
  in_place_ = true;
}

void ModelChanges::Save(StateWriter& writer) const {
  writer.Put(static_cast<std::uint64_t>(overrides_.size()));
  for (const ModelOverride& one : overrides_) {
    writer.Put(static_cast<std::uint64_t>(one.field.size()));
    writer.PutBytes({reinterpret_cast<const std::uint8_t*>(one.field.data()), one.field.size()});
    PutValues(writer, one.low);
    PutValues(writer, one.high);
  }
}

void ModelChanges::Load(StateReader& reader, const PhysicsModel& model) {
  const auto count = reader.Get<std::uint64_t>();
  ModelOverrides loaded;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string name = FieldNameIn(reader);
    ModelOverride one{name, GetValues(reader), {}};
    one.high = GetValues(reader);
    loaded.push_back(std::move(one));
  }
  // checks loaded values like a user's, because bytes are not trusted
  Check(model, loaded);
  overrides_ = std::move(loaded);
  in_place_ = false;
}

}  // namespace rollouts
