// SPDX-License-Identifier: Apache-2.0
// The arrays of a sampled batch.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rollouts/replay/gather.h"
#include "rollouts/replay/replay_store.h"
#include "rollouts/support/page_memory.h"

namespace rollouts {

// Arrays of one batch size for the fields of a plan and for the infos of a sample.
class BatchArrays {
 public:
  BatchArrays(const replay::ChunkLayout& layout, const replay::GatherPlan& plan,
              std::int64_t batch_size);

  // Tells if nobody holds an array or a view of one. Needs the GIL.
  bool Free() const;
  std::int64_t batch_size() const { return batch_size_; }
  // name -> view, in which `out` replaces fields.
  pybind11::dict Views(const pybind11::dict& out) const;
  // Addresses to write the fields to, except those in `out`.
  std::vector<std::uint8_t*> FieldPointers(const pybind11::dict& out) const;
  // Writes the infos, which are not fields.
  void WriteInfo(std::span<const replay::Sampled> batch) const;

 private:
  struct Column {
    pybind11::str name;
    pybind11::array array;
    std::uint8_t* data;
  };
  std::int64_t batch_size_;
  std::vector<Column> columns_;  // the plan's fields, then the infos
  std::size_t num_fields_;
};

// A GatherPlan, and the arrays of its batches, which are used again. Needs the GIL.
class PyGatherPlan {
 public:
  PyGatherPlan(std::shared_ptr<replay::ReplayStore> store, const pybind11::sequence& fields,
               bool time_major, const pybind11::object& hindsight);

  const replay::GatherPlan& plan() const { return plan_; }
  const replay::ReplayStore* store() const { return store_.get(); }
  // Returns arrays that nobody holds.
  std::shared_ptr<BatchArrays> Arrays(std::int64_t batch_size);
  // Throws SpecError or DTypeError for arrays that do not fit the plan's fields.
  void CheckOut(const pybind11::dict& out, std::int64_t batch_size) const;

 private:
  const std::shared_ptr<replay::ReplayStore> store_;
  const replay::GatherPlan plan_;
  std::vector<std::shared_ptr<BatchArrays>> kept_;
};

}  // namespace rollouts
