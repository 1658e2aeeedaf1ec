// SPDX-License-Identifier: Apache-2.0
// NumPy arguments of the replay store, checked.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

#include "rollouts/replay/replay_store.h"

namespace rollouts {

// Reads tuples (name, dtype, shape, stack, pad), and dicts as declared in rollouts/_native.pyi.
std::vector<replay::ColumnSpec> ReadColumns(const pybind11::sequence& columns);
std::vector<replay::TableSpec> ReadTables(const pybind11::sequence& tables);

using Int64Array = pybind11::array_t<std::int64_t, pybind11::array::c_style>;
using DoubleArray = pybind11::array_t<double, pybind11::array::c_style>;

// A one-dimensional array of whole numbers. Throws DTypeError naming `what`.
Int64Array ReadIds(const pybind11::object& given, const char* what);
// Reads `count` priorities; None is NaN, one number is the priority of all. Throws SpecError unless
// each is from 0 to `most`.
DoubleArray ReadPriorities(const pybind11::object& given, std::size_t count, double most);
// Throws a SpecError that names `priority[i]` unless the priority is from 0 to `most`.
void CheckPriority(double priority, std::size_t i, double most);
// `count` lengths from one number or an array.
std::vector<std::int32_t> ReadLengths(const pybind11::object& given, std::size_t count);

template <typename T>
std::span<const T> Span(const pybind11::array_t<T, pybind11::array::c_style>& array) {
  return {array.data(), static_cast<std::size_t>(array.size())};
}

// The arguments of append: what the store reads, and the arrays that own it.
class AppendArguments {
 public:
  AppendArguments(const replay::ChunkLayout& layout, const pybind11::object& stream_id,
                  const pybind11::dict& columns, const pybind11::object& first,
                  const pybind11::object& ended, const pybind11::object& final,
                  const pybind11::object& valid);

  const replay::AppendBatch& batch() const { return batch_; }
  // (T, B), or (B,) where the columns have no time axis.
  std::vector<pybind11::ssize_t> shape() const;

 private:
  void FindShape(const pybind11::dict& columns);
  std::vector<replay::AppendBatch::Values> ReadValues(const pybind11::dict& given,
                                                      const std::vector<pybind11::ssize_t>& lead,
                                                      const std::string& what);
  const std::uint8_t* ReadMask(const pybind11::object& given, const char* what);
  void CheckStacks(const std::vector<replay::AppendBatch::Values>& values,
                   const std::string& what) const;

  const replay::ChunkLayout& layout_;
  std::vector<pybind11::object> owners_;
  Int64Array streams_;
  bool has_time_ = false;
  pybind11::ssize_t steps_ = 1;
  replay::AppendBatch batch_;
};

}  // namespace rollouts
