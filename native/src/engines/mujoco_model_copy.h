// SPDX-License-Identifier: Apache-2.0
// A model that shares the arrays of another one, except those that it owns.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mujoco_model_fields.h"
#include "rollouts/support/state.h"

namespace rollouts {

// Throws SpecError for a field that a simulation may not own, or that does not exist. `xml_path` is
// for the message.
const ModelField& FindField(const std::vector<ModelField>& fields, const std::string& name,
                            const std::string& xml_path);

// An mjModel's struct, whose pointers lead to the arrays of the one that it was copied from.
class ModelStruct {
 public:
  explicit ModelStruct(const mjModel* from);
  mjModel* get() { return reinterpret_cast<mjModel*>(bytes_.get()); }
  const mjModel* get() const { return reinterpret_cast<const mjModel*>(bytes_.get()); }

 private:
  std::unique_ptr<std::uint8_t[]> bytes_;
};

// Used by one thread at a time. `shared` and its `fields` must outlive it; they are only read.
class ModelCopy {
 public:
  ModelCopy(const mjModel* shared, const std::vector<ModelField>& fields)
      : shared_(shared), fields_(fields), own_(shared) {}
  ModelCopy(const ModelCopy&) = delete;

  // The model, which MuJoCo must not free.
  const mjModel* model() const { return own_.get(); }

  // The values of a field, which this model owns from now on. `keep`: their address stays the
  // same; without it the next DeriveConstants, Restore or Load may end the ownership.
  std::span<std::uint8_t> Own(const ModelField& field, bool keep);

  // Calls mj_setConst; `scratch` loses its state. Arrays that mj_setConst writes stay own where
  // they differ from the shared ones. Throws EngineError; all fields then have the shared values.
  void DeriveConstants(mjData* scratch);

  // Gives all fields the shared values.
  void Restore();

  // Tells if any field differs from that of the shared model.
  bool DiffersFromShared() const;
  // Writes the fields that differ.
  void Save(StateWriter& writer) const;
  // Reads fields; all others get the shared values. `scratch` loses its state. Throws SpecError;
  // the simulation then has the shared values.
  void Load(StateReader& reader, mjData* scratch);
  // Reads what Save wrote: names, and the bytes of values.
  static std::vector<std::pair<std::string, std::span<const std::uint8_t>>> ReadSaved(
      StateReader& reader);
  // Reads what Save wrote; returns whether it has no fields.
  static bool IsEmpty(StateReader reader) { return reader.Get<std::uint64_t>() == 0; }

 private:
  struct Free {
    void operator()(std::uint8_t* data) const { std::free(data); }
  };
  struct OwnField {
    const ModelField* field;
    bool keep;
    std::unique_ptr<std::uint8_t, Free> data;  // null where the values lie in the struct
  };

  bool Differs(const OwnField& copy) const;
  void DropEqual();

  const mjModel* const shared_;
  const std::vector<ModelField>& fields_;
  ModelStruct own_;
  std::vector<OwnField> own_fields_;
};

}  // namespace rollouts
