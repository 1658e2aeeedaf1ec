// SPDX-License-Identifier: Apache-2.0
#include "mujoco_model_copy.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "mujoco_lib.h"
#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

constexpr std::size_t kAlignment = 64;  // bytes; as MuJoCo's own arrays have

std::uint8_t* Allocate(std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* const data = std::aligned_alloc(kAlignment, rounded);
  if (!data) throw std::bad_alloc();
  return static_cast<std::uint8_t*>(data);
}

// A field of a saved state.
struct Saved {
  const ModelField* field;
  std::span<const std::uint8_t> values;
};

Saved ReadSaved(StateReader& reader, const std::vector<ModelField>& fields) {
  const auto name_bytes = reader.GetBytes(reader.Get<std::uint64_t>());
  const std::string name(name_bytes.begin(), name_bytes.end());
  const auto values = reader.GetBytes(reader.Get<std::uint64_t>());
  const auto field = std::find_if(fields.begin(), fields.end(),
                                  [&](const ModelField& one) { return name == one.name; });
  // constants too: mj_setConst may have made them differ
  const bool may_differ = field != fields.end() &&
                          (field->use == ModelField::Use::kValues || field->is_constant);
  if (!may_differ || field->bytes() != values.size()) {
    throw SpecError("has " + std::to_string(values.size()) + " bytes of an own '" + name +
                    "', which this model does not have so");
  }
  return {&*field, values};
}

}  // namespace

ModelStruct::ModelStruct(const mjModel* from)
    : bytes_(std::make_unique<std::uint8_t[]>(Release().model_bytes)) {
  // shallow: the arrays stay the other model's
  std::memcpy(bytes_.get(), from, Release().model_bytes);
}

const ModelField& FindField(const std::vector<ModelField>& fields, const std::string& name,
                            const std::string& xml_path) {
  const auto field = std::find_if(fields.begin(), fields.end(),
                                  [&](const ModelField& one) { return name == one.name; });
  const std::string what = "the model " + xml_path;
  // three reasons why not, each with what to do instead
  if (field == fields.end()) {
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
    own_fields_.push_back(std::move(made));
    copy = own_fields_.end() - 1;
    // only now: what threw before has changed nothing
    if (copy->data) field.PointTo(own_.get(), copy->data.get());
  }
  // once an address was given away it stays
  copy->keep |= keep;
  return {field.DataIn(own_.get()), field.bytes()};
}

bool ModelCopy::Differs(const OwnField& copy) const {
  const ModelField& field = *copy.field;
  return std::memcmp(field.DataIn(own_.get()), field.DataIn(shared_), field.bytes()) != 0;
}

void ModelCopy::DropEqual() {
  std::erase_if(own_fields_, [&](const OwnField& copy) {
    if (copy.keep || Differs(copy)) return false;
    // before its memory goes
    if (copy.data) copy.field->PointTo(own_.get(), copy.field->DataIn(shared_));
    return true;
  });
}

void ModelCopy::DeriveConstants(mjData* scratch) {
  for (const ModelField& field : fields_) {
    // mj_setConst writes them, and must not write into the shared model
    if (field.is_constant) Own(field, /*keep=*/false);
  }
  try {
    Guarded([&] { Mujoco().set_const(own_.get(), scratch); });
  } catch (...) {
    // half of the constants may be written: none is better
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
  // arrays that are own but equal are as good as shared: a state does not have them
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

void ModelCopy::Load(StateReader& reader) {
  const auto count = reader.Get<std::uint64_t>();
  std::vector<Saved> saved;
  for (std::uint64_t i = 0; i < count; ++i) saved.push_back(ReadSaved(reader, fields_));
  // fields of its own that the state lacks get the shared values
  Restore();
  for (const auto& [field, values] : saved) {
    const std::span<std::uint8_t> own = Own(*field, /*keep=*/false);
    std::memcpy(own.data(), values.data(), values.size());
  }
}

}  // namespace rollouts
