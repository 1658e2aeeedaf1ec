// SPDX-License-Identifier: Apache-2.0
#include "bindings/replay/replay_arrays.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bindings/arrays.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {

using replay::AppendBatch;
using replay::ColumnSpec;

namespace {

std::string Text(const py::handle& object) { return py::str(object).cast<std::string>(); }

std::string ShapeText(const std::vector<py::ssize_t>& shape) { return Text(py::tuple(py::cast(shape))); }

std::vector<py::ssize_t> ShapeOf(const py::array& array) {
  return {array.shape(), array.shape() + array.ndim()};
}

// lead + (stack,) where `whole_stack` + the column's shape
std::vector<py::ssize_t> ValueShape(std::vector<py::ssize_t> lead, const ColumnSpec& spec,
                                    bool whole_stack) {
  if (whole_stack) lead.push_back(spec.stack);
  lead.insert(lead.end(), spec.shape.begin(), spec.shape.end());
  return lead;
}

// Reads a C-ordered array of the column's dtype: values are never converted on their way into the
// store.
py::array ReadArray(const py::handle& given, const ColumnSpec& spec, const std::string& what) {
  if (!py::isinstance<py::array>(given)) {
    throw DTypeError(what + " must be a NumPy array, got " + Text(py::type::of(given)));
  }
  const auto array = py::reinterpret_borrow<py::array>(given);
  if (Text(array.dtype().attr("str")) != spec.dtype) {
    throw DTypeError(what + " has dtype " + Text(array.dtype()) + ", expected " +
                     Text(py::dtype(spec.dtype)));
  }
  // copies only where the rows are not in C order
  return py::array::ensure(array, py::array::c_style);
}

// Keys with a default may be left out.
template <typename T>
T Item(const py::dict& table, const char* key, const T& fallback) {
  return table.contains(key) ? table[key].cast<T>() : fallback;
}

// Reads ("kind", numbers ...), as rollouts/replay makes it; also sets the table's order.
replay::RateLimiterSpec ReadLimiter(const py::sequence& given, replay::TableSpec& spec) {
  using replay::RateLimiterSpec;
  const auto kind = given[0].cast<std::string>();
  const auto integer = [&](std::size_t i) { return py::object(given[i]).cast<std::int64_t>(); };
  const auto number = [&](std::size_t i) { return py::object(given[i]).cast<double>(); };
  if (kind == "min_size" && given.size() == 2) return RateLimiterSpec::MinSize(integer(1));
  if (kind == "sample_to_insert_ratio" && given.size() == 5) {
    return RateLimiterSpec::SampleToInsertRatio(number(1), integer(2), number(3), number(4));
  }
  if ((kind == "queue" || kind == "stack") && given.size() == 2) {
    // the table checks that its selectors fit this order
    spec.order = kind == "queue" ? replay::TableSpec::Order::kQueue : replay::TableSpec::Order::kStack;
    return RateLimiterSpec::Queue(integer(1));
  }
  throw SpecError("table '" + spec.name + "': limiter is " + Text(py::repr(given)) +
                  ", expected ('min_size', n), ('sample_to_insert_ratio', samples_per_insert, "
                  "min_size, min_diff, max_diff), ('queue', size) or ('stack', size)");
}

// A dict, of which each key must be known.
replay::TableSpec ReadTable(const py::dict& given) {
  static const char* const kKeys[] = {"name", "max_size", "sampler", "remover", "sampler_exponent",
                                      "remover_exponent", "max_times_sampled", "seed", "limiter"};
  // a misspelt key would otherwise silently mean the default
  for (const auto& [key, value] : given) {
    const std::string name = Text(key);
    if (std::find(std::begin(kKeys), std::end(kKeys), name) == std::end(kKeys)) {
      throw SpecError("a table has the unknown key '" + name + "'");
    }
  }
  for (const char* const key : {"name", "max_size", "sampler", "remover", "limiter"}) {
    if (!given.contains(key)) throw SpecError(std::string("a table lacks the key '") + key + "'");
  }
  // the table itself checks the numbers
  replay::TableSpec spec;
  spec.name = given["name"].cast<std::string>();
  spec.max_size = given["max_size"].cast<std::int64_t>();
  const std::string table = "table '" + spec.name + "': ";
  spec.sampler = {replay::SelectorKindOf(given["sampler"].cast<std::string>(), table + "sampler"),
                  Item(given, "sampler_exponent", 1.0)};
  spec.remover = {replay::SelectorKindOf(given["remover"].cast<std::string>(), table + "remover"),
                  Item(given, "remover_exponent", 1.0)};
  spec.max_times_sampled = Item(given, "max_times_sampled", 0);
  spec.seed = Item(given, "seed", std::uint64_t{0});
  spec.limiter = ReadLimiter(given["limiter"].cast<py::sequence>(), spec);
  return spec;
}

}  // namespace

std::vector<ColumnSpec> ReadColumns(const py::sequence& columns) {
  std::vector<ColumnSpec> specs;
  for (const auto& given : columns) {
    const auto column = given.cast<py::tuple>();
    if (column.size() != 5) {
      throw SpecError("column " + Text(column) + ", expected (name, dtype, shape, stack, pad)");
    }
    const auto dtype = py::dtype::from_args(py::object(column[1]));
    ColumnSpec spec;
    spec.name = column[0].cast<std::string>();
    spec.dtype = Text(dtype.attr("str"));
    // rows are stored, compared and saved as bytes
    if (std::string("biuf").find(dtype.kind()) == std::string::npos || spec.dtype[0] == '>') {
      throw DTypeError("column '" + spec.name + "' has dtype " + Text(dtype) +
                       ", expected bool, integers or floats of this machine's byte order");
    }
    spec.item_bytes = dtype.itemsize();
    spec.shape = column[2].cast<std::vector<std::int64_t>>();
    spec.stack = column[3].cast<std::int32_t>();
    const auto pad = column[4].cast<std::string>();
    if (pad != "zero" && pad != "repeat") {
      throw SpecError("column '" + spec.name + "' has pad '" + pad + "', expected zero or repeat");
    }
    spec.padding = pad == "zero" ? replay::Padding::kZero : replay::Padding::kRepeat;
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::vector<replay::TableSpec> ReadTables(const py::sequence& tables) {
  std::vector<replay::TableSpec> specs;
  for (const auto& table : tables) specs.push_back(ReadTable(py::dict(py::reinterpret_borrow<py::object>(table))));
  return specs;
}

Int64Array ReadIds(const py::object& given, const char* what) {
  const auto array = py::array::ensure(given);
  // an empty list is float64 for NumPy, and has no ids
  if (!array || array.ndim() != 1 || (array.size() > 0 && array.dtype().kind() != 'i' && array.dtype().kind() != 'u')) {
    PyErr_Clear();
    throw DTypeError(std::string(what) + " must be a one-dimensional array of whole numbers");
  }
  return py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>(array);
}

void CheckPriority(double priority, std::size_t i, double most) {
  if (priority >= 0 && priority <= most) return;
  const bool is_number = priority >= 0 && std::isfinite(priority);
  const std::string expected =
      is_number ? "expected at most " + Text(py::float_(most)) +
                      ", so that sums of priority ** exponent stay finite"
                : std::string("negative or not finite, expected a finite number of 0 or more");
  throw SpecError("priority[" + std::to_string(i) + "] is " + Text(py::float_(priority)) + ", " +
                  expected);
}

DoubleArray ReadPriorities(const py::object& given, std::size_t count, double most) {
  DoubleArray priorities(static_cast<py::ssize_t>(count));
  double* const to = priorities.mutable_data();
  if (given.is_none()) {
    // NaN stands for the highest priority that the table has seen
    std::fill_n(to, count, std::numeric_limits<double>::quiet_NaN());
    return priorities;
  }
  const auto array = py::array_t<double, py::array::c_style | py::array::forcecast>::ensure(given);
  if (!array) {
    PyErr_Clear();
    throw DTypeError("priority must be an array of numbers, got " + Text(py::type::of(given)));
  }
  // a number alone is the priority of all items
  const bool one = array.ndim() == 0;
  if (!one && (array.ndim() != 1 || static_cast<std::size_t>(array.size()) != count)) {
    throw SpecError("priority has shape " + ShapeString(array) + ", expected (" +
                    std::to_string(count) + ",): one per item");
  }
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = array.data()[one ? 0 : i];
    CheckPriority(to[i], i, most);
  }
  return priorities;
}

std::vector<std::int32_t> ReadLengths(const py::object& given, std::size_t count) {
  // one for all items
  if (PyIndex_Check(given.ptr()) && !py::isinstance<py::array>(given)) {
    return std::vector<std::int32_t>(count, given.cast<std::int32_t>());
  }
  const Int64Array array = ReadIds(given, "length");
  if (static_cast<std::size_t>(array.size()) != count) {
    throw SpecError("length has " + std::to_string(array.size()) + " entries, expected " +
                    std::to_string(count) + ": one per item");
  }
  std::vector<std::int32_t> lengths(count);
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  for (std::size_t i = 0; i < count; ++i) {
    // a value out of range stays out of range, so that Refer reports it
    lengths[i] = static_cast<std::int32_t>(std::clamp<std::int64_t>(array.data()[i], -1, kMost));
  }
  return lengths;
}

AppendArguments::AppendArguments(const replay::ChunkLayout& layout, const py::object& stream_id,
                                 const py::dict& columns, const py::object& first,
                                 const py::object& ended, const py::object& final,
                                 const py::object& valid)
    : layout_(layout), streams_(ReadIds(stream_id, "stream_id")) {
  // the shape comes first, because the other arrays are compared with it
  FindShape(columns);
  batch_.streams = Span(streams_);
  batch_.steps = steps_;
  batch_.columns = ReadValues(columns, shape(), "columns");
  CheckStacks(batch_.columns, "columns");
  batch_.first = ReadMask(first, "first");
  batch_.ended = ReadMask(ended, "ended");
  batch_.valid = ReadMask(valid, "valid");

  // there is a final row for each end, so their number is checked here
  const auto marks = batch_.ended ? static_cast<std::size_t>(steps_ * streams_.size()) : 0;
  const auto num_ended = std::count_if(batch_.ended, batch_.ended + marks, [](auto mark) { return mark != 0; });
  if (num_ended == 0) return;
  const py::dict given = final.is_none() ? py::dict() : final.cast<py::dict>();
  batch_.final = ReadValues(given, {static_cast<py::ssize_t>(num_ended)}, "final");
  CheckStacks(batch_.final, "final");
}

std::vector<py::ssize_t> AppendArguments::shape() const {
  if (has_time_) return {steps_, streams_.size()};
  return {streams_.size()};
}

// Finds whether there is a time axis: plain columns show it directly; if all columns are stacked,
// the shape that fits decides.
void AppendArguments::FindShape(const py::dict& columns) {
  const py::ssize_t num_streams = streams_.size();
  for (const bool stacked : {false, true}) {
    for (const ColumnSpec& spec : layout_.specs) {
      if (spec.stacked() != stacked || !columns.contains(spec.name)) continue;
      const py::array array = ReadArray(columns[spec.name.c_str()], spec, "columns['" + spec.name + "']");
      const py::ssize_t lead = array.ndim() - std::ssize(spec.shape);
      const bool whole_without_time = stacked && lead == 2 && array.shape(0) == num_streams &&
                                      array.shape(1) == spec.stack;
      has_time_ = lead >= 2 && !whole_without_time;
      if (has_time_) steps_ = array.shape(0);
      return;
    }
  }
  throw SpecError("columns has none of the store's columns");
}

std::vector<AppendBatch::Values> AppendArguments::ReadValues(const py::dict& given,
                                                             const std::vector<py::ssize_t>& lead,
                                                             const std::string& what) {
  std::vector<AppendBatch::Values> values(layout_.specs.size());
  std::size_t found = 0;
  for (std::size_t c = 0; c < values.size(); ++c) {
    const ColumnSpec& spec = layout_.specs[c];
    if (!given.contains(spec.name)) continue;
    ++found;
    const std::string name = what + "['" + spec.name + "']";
    const py::array array = ReadArray(given[spec.name.c_str()], spec, name);
    const auto shape = ShapeOf(array);
    // one frame or the whole stack: only the shape shows which
    values[c].whole_stack = spec.stacked() && shape == ValueShape(lead, spec, true);
    const auto expected = ValueShape(lead, spec, false);
    if (!values[c].whole_stack && shape != expected) {
      throw SpecError(name + " has shape " + ShapeString(array) + ", expected " +
                      ShapeText(expected) +
                      (spec.stacked() ? " or " + ShapeText(ValueShape(lead, spec, true)) : ""));
    }
    values[c].data = static_cast<const std::uint8_t*>(array.data());
    // kept here, because nobody else may hold a contiguous copy
    owners_.push_back(array);
  }
  // some entry was not used: the error names it
  if (found == given.size()) return values;
  for (const auto& [key, value] : given) {
    const std::string name = Text(key);
    const auto is = [&](const ColumnSpec& spec) { return spec.name == name; };
    if (std::none_of(layout_.specs.begin(), layout_.specs.end(), is)) {
      throw SpecError(what + " has '" + name + "', which is no column of the store");
    }
  }
  return values;
}

const std::uint8_t* AppendArguments::ReadMask(const py::object& given, const char* what) {
  if (given.is_none()) return nullptr;
  const auto array = py::array::ensure(given, py::array::c_style);
  if (!array || array.dtype().kind() != 'b' || ShapeOf(array) != shape()) {
    PyErr_Clear();
    throw SpecError(std::string(what) + " is " +
                    (array ? Text(array.dtype()) + " of shape " + ShapeString(array)
                           : std::string("no array")) +
                    ", expected bool of shape " + ShapeText(shape()));
  }
  owners_.push_back(array);
  return static_cast<const std::uint8_t*>(array.data());
}

void AppendArguments::CheckStacks(const std::vector<AppendBatch::Values>& values,
                                  const std::string& what) const {
  for (std::size_t c = 0; c < values.size(); ++c) {
    if (layout_.specs[c].stacked() && !values[c].data) {
      throw SpecError(what + " lacks '" + layout_.specs[c].name +
                      "': the frames of a stacked column are in every row");
    }
  }
}

}  // namespace rollouts
