// SPDX-License-Identifier: Apache-2.0
#include "mujoco_model_copy.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "mujoco_lib.h"
#include "mujoco_library.h"
#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

constexpr std::size_t kAlignment = 64;  // bytes, as in MuJoCo's own arrays

std::uint8_t* Allocate(std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* const data = std::aligned_alloc(kAlignment, rounded);
  if (!data) throw std::bad_alloc();
  return static_cast<std::uint8_t*>(data);
}

// Tells if values may be put into a model: MuJoCo trusts them, as if its own compiler had checked
// them. A number that is not finite is allowed where the shared model has the same one.
template <typename Real>
bool AreFinite(std::span<const std::uint8_t> bytes, const std::uint8_t* shared) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Real)) {
    Real value;
    std::memcpy(&value, bytes.data() + at, sizeof(Real));
    if (!std::isfinite(value) && std::memcmp(bytes.data() + at, shared + at, sizeof(Real)) != 0) {
      return false;
    }
  }
  return true;
}

bool AreValues(const ModelField& field, std::span<const std::uint8_t> bytes, const mjModel* shared) {
  const std::uint8_t* const before = field.DataIn(shared);
  switch (field.type) {
    case ModelValue::kDouble:
      return AreFinite<double>(bytes, before) &&
             (std::string_view(field.name) != "opt.timestep" ||
              *reinterpret_cast<const double*>(bytes.data()) > 0);
    case ModelValue::kFloat: return AreFinite<float>(bytes, before);
    case ModelValue::kBool:
      return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t one) { return one <= 1; });
    default: return true;
  }
}

// Counts and indices that mj_setConst computes: with other values MuJoCo would read outside of its
// arrays.
bool IsComputed(const ModelField& field) {
  return field.is_constant && field.use != ModelField::Use::kValues &&
         field.type != ModelValue::kDouble && field.type != ModelValue::kFloat;
}

bool IsNameCharacter(std::uint8_t one) {
  return std::isalnum(one) != 0 || one == '_' || one == '.';
}

[[noreturn]] void ThrowForeign(const std::string& name, std::size_t bytes) {
  throw SpecError("has " + std::to_string(bytes) + " bytes of an own '" + name +
                  "', which this model does not have so");
}

}  // namespace

std::string FieldNameIn(StateReader& reader) {
  const auto name = reader.GetBytes(reader.Get<std::uint64_t>());
  // checked, because messages show it
  if (!std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    throw SpecError("names a field of models that there is not");
  }
  return {name.begin(), name.end()};
}

ModelStruct::ModelStruct(const mjModel* from)
    : bytes_(std::make_unique<std::uint8_t[]>(Release().model_bytes)) {
  // a shallow copy, so that the arrays stay those of the other model
  std::memcpy(bytes_.get(), from, Release().model_bytes);
}

const ModelField& FindField(const std::vector<ModelField>& fields, const std::string& name,
                            const std::string& xml_path) {
  const ModelField* const field = FieldNamed(fields, name);
  const std::string what = "the model " + xml_path;
  // three reasons to refuse a field, each with advice
  if (!field) {
    throw SpecError(what + " has no field '" + name + "', or has it empty; fields are named as " +
                    "in MuJoCo's mjModel, those of its options as in 'opt.gravity'");
  }
  if (field->use == ModelField::Use::kDerived) {
    throw SpecError("'" + name + "' of " + what + " cannot be set: MuJoCo computes it from other " +
                    "fields (mj_setConst), set those");
  }
  if (field->use == ModelField::Use::kStructure) {
    throw SpecError("'" + name + "' of " + what + " cannot be set: it says what the model is " +
                    "made of, and simulations that share a model differ only in its values, " +
                    "such as masses, sizes, friction and gear; write another XML file");
  }
  return *field;
}

std::span<std::uint8_t> ModelCopy::Own(const ModelField& field, bool keep) {
  auto copy = std::find_if(own_fields_.begin(), own_fields_.end(),
                           [&](const OwnField& one) { return one.field == &field; });
  if (copy == own_fields_.end()) {
    // options lie in the struct itself, which is a copy already; arrays are copied
    OwnField made{&field, keep, nullptr};
    if (!field.inside) {
      made.data.reset(Allocate(field.bytes()));
      std::memcpy(made.data.get(), field.DataIn(shared_), field.bytes());
    }
    // inserted in the order of the fields, whichever was set first, so that equal models have equal
    // states
    const auto after = std::find_if(own_fields_.begin(), own_fields_.end(),
                                    [&](const OwnField& one) { return one.field > &field; });
    copy = own_fields_.insert(after, std::move(made));
    // set only now, because exceptions above must change nothing
    if (copy->data) field.PointTo(own_.get(), copy->data.get());
  }
  // an address that was given away must stay
  copy->keep |= keep;
  return {field.DataIn(own_.get()), field.bytes()};
}

bool ModelCopy::Differs(const OwnField& copy) const {
  const ModelField& field = *copy.field;
  return std::memcmp(field.DataIn(own_.get()), field.DataIn(shared_), field.bytes()) != 0;
}

bool ModelCopy::DiffersFromShared() const {
  return std::any_of(own_fields_.begin(), own_fields_.end(),
                     [&](const OwnField& copy) { return Differs(copy); });
}

void ModelCopy::DropEqual() {
  std::erase_if(own_fields_, [&](const OwnField& copy) {
    if (copy.keep || Differs(copy)) return false;
    // set before the copy's memory is freed
    if (copy.data) copy.field->PointTo(own_.get(), copy.field->DataIn(shared_));
    return true;
  });
}

void ModelCopy::DeriveConstants(mjData* scratch) {
  for (const ModelField& field : fields_) {
    // made own first, because mj_setConst writes these arrays and must not write into the shared
    // model
    if (field.is_constant) Own(field, /*keep=*/false);
  }
  try {
    Guarded([&] { Mujoco().set_const(own_.get(), scratch); });
  } catch (...) {
    // some constants may be written and others not, so all are dropped
    Restore();
    throw;
  }
  DropEqual();
}

void ModelCopy::Restore() {
  for (const OwnField& copy : own_fields_) {
    std::memcpy(copy.field->DataIn(own_.get()), copy.field->DataIn(shared_), copy.field->bytes());
  }
  DropEqual();
}

void ModelCopy::Save(StateWriter& writer) const {
  // own arrays with equal values count as shared, and are not in a state
  const auto differ = std::count_if(own_fields_.begin(), own_fields_.end(),
                                    [&](const OwnField& copy) { return Differs(copy); });
  writer.Put(static_cast<std::uint64_t>(differ));
  for (const OwnField& copy : own_fields_) {
    if (!Differs(copy)) continue;
    const ModelField& field = *copy.field;
    const std::string name = field.name;
    writer.Put(static_cast<std::uint64_t>(name.size()));
    writer.PutBytes({reinterpret_cast<const std::uint8_t*>(name.data()), name.size()});
    writer.Put(static_cast<std::uint64_t>(field.bytes()));
    writer.PutBytes({field.DataIn(own_.get()), field.bytes()});
  }
}

std::vector<std::pair<std::string, std::span<const std::uint8_t>>> ModelCopy::ReadSaved(
    StateReader& reader) {
  const auto count = reader.Get<std::uint64_t>();
  std::vector<std::pair<std::string, std::span<const std::uint8_t>>> saved;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string name = FieldNameIn(reader);
    saved.emplace_back(name, reader.GetBytes(reader.Get<std::uint64_t>()));
  }
  return saved;
}

void ModelCopy::Load(StateReader& reader, mjData* scratch) {
  const auto saved = ReadSaved(reader);
  bool computes = false;
  for (const auto& [name, values] : saved) {
    const ModelField* const field = FieldNamed(fields_, name);
    // constants too, because mj_setConst may have changed them
    const bool may_differ =
        field && (field->use == ModelField::Use::kValues || field->is_constant);
    if (!may_differ || field->bytes() != values.size() || !AreValues(*field, values, shared_)) {
      ThrowForeign(name, values.size());
    }
    computes |= IsComputed(*field);
  }
  // own fields that the state lacks get the shared values
  Restore();
  const auto put = [&] {
    for (const auto& [name, values] : saved) {
      const ModelField& field = *FieldNamed(fields_, name);
      if (IsComputed(field)) continue;
      std::memcpy(Own(field, /*keep=*/false).data(), values.data(), values.size());
    }
  };
  put();
  if (!computes) return;
  DeriveConstants(scratch);
  for (const auto& [name, values] : saved) {
    const ModelField& field = *FieldNamed(fields_, name);
    if (!IsComputed(field)) continue;
    if (std::memcmp(field.DataIn(own_.get()), values.data(), values.size()) == 0) continue;
    Restore();
    ThrowForeign(name, values.size());
  }
  // put again, because mj_setConst has overwritten the constants, and those of the state may be
  // older
  put();
}

}  // namespace rollouts
