// SPDX-License-Identifier: Apache-2.0
// Batches of tensors that a kernel may write again, because nobody else holds them.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <vector>

namespace rollouts {

// The tensors of one batch, and how often each was held when nobody but their owner held them.
struct RowSet {
  pybind11::object owner;
  std::vector<pybind11::object> tensors;
  std::vector<Py_ssize_t> free_tensors;
  std::vector<pybind11::object> storages;  // addresses, as torch takes them
  std::vector<long> free_storages;
  pybind11::tuple arrays;  // the result of a step; empty: a step has none
  pybind11::object launch;
  std::byte* launch_bytes;  // in `launch`
};

// All calls are made with the GIL.
class RowSets {
 public:
  // `use_count`: torch's count of the tensors that share a storage; None: no set is ever free.
  explicit RowSets(pybind11::object use_count) : use_count_(std::move(use_count)) {}

  // Adds a set that nobody but `owner` holds; it is the last that TakeFree tries.
  void Add(pybind11::object owner, const pybind11::list& tensors, const pybind11::list& storages,
           pybind11::tuple arrays, pybind11::object launch, std::uintptr_t launch_address);

  // Returns the set that nobody holds and that was taken longest ago; null if all are held.
  RowSet* TakeFree();
  pybind11::object Take();

  pybind11::list Owners() const;
  void Clear();
  // Serves as tp_traverse of Python's garbage collector.
  int Visit(visitproc visit, void* arg) const;

 private:
  long UseCount(const pybind11::object& storage) const;
  bool IsFree(const RowSet& set) const;

  const pybind11::object use_count_;
  std::vector<RowSet> sets_;
  std::size_t oldest_ = 0;
};

}  // namespace rollouts
