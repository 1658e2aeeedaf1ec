// SPDX-License-Identifier: Apache-2.0
#include "bindings/replay/replay_batch.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/python_calls.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {

using replay::FieldSpec;
using replay::GatherPlan;
using replay::Sampled;

namespace {

constexpr std::size_t kMostKept = 8;  // sets of arrays that a plan keeps

// Marks are bool, row numbers int64; other fields have the column's dtype.
py::dtype FieldDType(const replay::ChunkLayout& layout, const GatherPlan::Field& field) {
  switch (field.source) {
    case GatherPlan::Source::kColumn:
    case GatherPlan::Source::kStack:
    // parts of observations, which are the first column
    case GatherPlan::Source::kAchieved: return py::dtype(layout.specs[field.column].dtype);
    case GatherPlan::Source::kRow: return py::dtype::of<std::int64_t>();
    default: return py::dtype::of<bool>();
  }
}

// The shape of a field: (B[, T], [stack,] *shape), or (T, B, ...) where time comes first.
std::vector<py::ssize_t> FieldShape(const replay::ChunkLayout& layout, const GatherPlan& plan,
                                    const GatherPlan::Field& field, std::int64_t batch_size) {
  std::vector<py::ssize_t> shape{batch_size};
  // (B, T, ...) or (T, B, ...)
  if (field.spec.count > 0) shape.insert(plan.time_major() ? shape.begin() : shape.end(), field.spec.count);
  if (field.source == GatherPlan::Source::kColumn || field.source == GatherPlan::Source::kStack) {
    const replay::ColumnSpec& spec = layout.specs[field.column];
    if (spec.stacked()) shape.push_back(spec.stack);
    shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
  }
  if (field.source == GatherPlan::Source::kAchieved) shape.push_back(plan.hindsight()->spec().size);
  return shape;
}

// A number about each sampled item, in addition to the fields.
struct Info {
  const char* name;
  char dtype;  // i int32, l int64, d float64
};
// All infos, in the order in which WriteInfo fills them.
constexpr Info kInfos[] = {{"key", 'l'},           {"probability", 'd'}, {"priority", 'd'},
                           {"times_sampled", 'i'}, {"table_size", 'l'},  {"stream_id", 'l'},
                           {"start", 'l'},         {"length", 'i'},      {"insert_index", 'l'},
                           {"num_inserts", 'l'}};

// The result of array.view(), without the search for a method: a batch has twenty arrays.
py::object ViewOf(const py::array& array) {
  const auto& api = py::detail::npy_api::get();
  const auto* const proxy = py::detail::array_proxy(array.ptr());
  PyObject* const view = api.PyArray_NewFromDescr_(
      api.PyArray_Type_, array.dtype().release().ptr(), proxy->nd, proxy->dimensions,
      proxy->strides, proxy->data, py::detail::npy_api::NPY_ARRAY_WRITEABLE_, nullptr);
  if (!view) throw py::error_already_set();
  auto owned = py::reinterpret_steal<py::object>(view);
  if (api.PyArray_SetBaseObject_(view, array.inc_ref().ptr()) != 0) throw py::error_already_set();
  return owned;
}

py::dtype InfoDType(char dtype) {
  if (dtype == 'i') return py::dtype::of<std::int32_t>();
  return dtype == 'l' ? py::dtype::of<std::int64_t>() : py::dtype::of<double>();
}

}  // namespace

BatchArrays::BatchArrays(const replay::ChunkLayout& layout, const GatherPlan& plan,
                         std::int64_t batch_size)
    : batch_size_(batch_size), num_fields_(plan.fields().size()) {
  // large arrays get memory of the kernel, which is freed with the NumPy array
  const auto add = [&](const std::string& name, const py::dtype& dtype,
                       const std::vector<py::ssize_t>& shape) {
    py::ssize_t bytes = dtype.itemsize();
    for (const py::ssize_t extent : shape) bytes *= extent;
    auto memory = std::make_unique<PageMemory>(static_cast<std::size_t>(std::max<py::ssize_t>(bytes, 1)));
    std::uint8_t* const data = memory->data();
    const py::capsule owner(memory.release(),
                            [](void* pointer) { delete static_cast<PageMemory*>(pointer); });
    columns_.push_back({py::str(name), py::array(dtype, shape, {}, data, owner), data});
  };
  for (const GatherPlan::Field& field : plan.fields()) {
    add(field.spec.name, FieldDType(layout, field), FieldShape(layout, plan, field, batch_size));
  }
  for (const Info& info : kInfos) add(info.name, InfoDType(info.dtype), {batch_size});
}

bool BatchArrays::Free() const {
  return std::all_of(columns_.begin(), columns_.end(),
                     [](const Column& column) { return Py_REFCNT(column.array.ptr()) == 1; });
}

py::dict BatchArrays::Views(const py::dict& out) const {
  py::dict views;
  // most calls give no `out`: the names are not looked up then
  const bool any_out = !out.empty();
  for (const Column& column : columns_) {
    const py::object view = any_out && out.contains(column.name) ? py::object(out[column.name])
                                                                 : ViewOf(column.array);
    Put(views, column.name, view);
  }
  return views;
}

std::vector<std::uint8_t*> BatchArrays::FieldPointers(const py::dict& out) const {
  // addresses are read with the GIL, and written to without it
  std::vector<std::uint8_t*> pointers;
  pointers.reserve(num_fields_);
  for (std::size_t i = 0; i < num_fields_; ++i) {
    // the plan's fields come first
    const Column& column = columns_[i];
    pointers.push_back(!out.empty() && out.contains(column.name)
                           ? static_cast<std::uint8_t*>(
                                 py::array(py::reinterpret_borrow<py::array>(out[column.name])).mutable_data())
                           : column.data);
  }
  return pointers;
}

void BatchArrays::WriteInfo(std::span<const Sampled> batch) const {
  // the infos follow the fields, in the order of kInfos
  const auto column = [&](std::size_t i) { return columns_[num_fields_ + i].data; };
  const auto write = [&]<typename T>(std::size_t i, T, auto&& value) {
    T* const to = reinterpret_cast<T*>(column(i));
    for (std::size_t b = 0; b < batch.size(); ++b) to[b] = static_cast<T>(value(batch[b]));
  };
  write(0, std::int64_t{}, [](const Sampled& s) { return s.key; });
  write(1, double{}, [](const Sampled& s) { return s.probability; });
  write(2, double{}, [](const Sampled& s) { return s.priority; });
  write(3, std::int32_t{}, [](const Sampled& s) { return s.times_sampled; });
  write(4, std::int64_t{}, [](const Sampled& s) { return s.table_size; });
  write(5, std::int64_t{}, [](const Sampled& s) { return s.run.stream; });
  write(6, std::int64_t{}, [](const Sampled& s) { return s.run.start; });
  write(7, std::int32_t{}, [](const Sampled& s) { return s.run.length; });
  write(8, std::int64_t{}, [](const Sampled& s) { return s.insert_index; });
  write(9, std::int64_t{}, [](const Sampled& s) { return s.num_inserts; });
}

namespace {

// Reads (name, column, offset, count); GatherPlan checks their values.
std::vector<FieldSpec> ReadFields(const py::sequence& fields) {
  std::vector<FieldSpec> specs;
  for (const auto& given : fields) {
    const auto field = given.cast<py::tuple>();
    if (field.size() != 4) {
      throw SpecError("field " + py::str(field).cast<std::string>() +
                      ", expected (name, column, offset, count)");
    }
    specs.push_back({field[0].cast<std::string>(), field[1].cast<std::string>(),
                     field[2].cast<std::int64_t>(), field[3].cast<std::int64_t>()});
  }
  return specs;
}

// (strategy, reward, share, threshold, steps, achieved, desired, size), or None.
std::optional<replay::HindsightSpec> ReadHindsight(const py::object& given) {
  using Spec = replay::HindsightSpec;
  if (given.is_none()) return std::nullopt;
  const auto [strategy, reward, share, threshold, steps, achieved, desired, size] =
      given.cast<std::tuple<std::string, std::string, double, double, std::int64_t, std::int64_t,
                            std::int64_t, std::int64_t>>();
  const auto one_of = [](const std::string& name, std::initializer_list<const char*> names) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) throw SpecError("hindsight has no '" + name + "'");
    return static_cast<std::int32_t>(found - names.begin());
  };
  return Spec{static_cast<Spec::Strategy>(one_of(strategy, {"future", "final", "episode"})),
              static_cast<Spec::Reward>(one_of(reward, {"caller", "sparse", "dense"})),
              share, threshold, steps, achieved, desired, size};
}

}  // namespace

PyGatherPlan::PyGatherPlan(std::shared_ptr<replay::ReplayStore> store, const py::sequence& fields,
                           bool time_major, const py::object& hindsight)
    : store_(std::move(store)),
      plan_(store_->layout(), ReadFields(fields), time_major, ReadHindsight(hindsight)) {}

std::shared_ptr<BatchArrays> PyGatherPlan::Arrays(std::int64_t batch_size) {
  for (const auto& arrays : kept_) {
    // free: neither a sample nor Python holds any of its arrays. A sample in another thread may
    // hold a set without having made a view of it yet
    if (arrays.use_count() == 1 && arrays->batch_size() == batch_size && arrays->Free()) return arrays;
  }
  // none fits: free sets of other sizes are dropped first
  std::erase_if(kept_, [&](const auto& arrays) {
    return arrays.use_count() == 1 && arrays->batch_size() != batch_size && arrays->Free();
  });
  auto arrays = std::make_shared<BatchArrays>(store_->layout(), plan_, batch_size);
  // sets beyond that are freed with their views
  if (kept_.size() < kMostKept) kept_.push_back(arrays);
  return arrays;
}

void PyGatherPlan::CheckOut(const py::dict& out, std::int64_t batch_size) const {
  ApartArrays apart;
  for (const auto& [key, value] : out) {
    const auto name = py::str(key).cast<std::string>();
    const auto is = [&](const GatherPlan::Field& field) { return field.spec.name == name; };
    // `out` may name only fields: the infos of a sample have other arrays
    const auto found = std::find_if(plan_.fields().begin(), plan_.fields().end(), is);
    if (found == plan_.fields().end()) {
      throw SpecError("out has '" + name + "', which is no field of the plan");
    }
    if (!py::isinstance<py::array>(value)) {
      throw DTypeError("out['" + name + "'] must be a NumPy array, got " +
                       py::str(py::type::of(value)).cast<std::string>());
    }
    const auto array = py::reinterpret_borrow<py::array>(value);
    const py::dtype dtype = FieldDType(store_->layout(), *found);
    const auto shape = FieldShape(store_->layout(), plan_, *found, batch_size);
    // rows are written by pointer
    constexpr int kLayout =
        py::detail::npy_api::NPY_ARRAY_ALIGNED_ | py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_;
    const bool fits = array.dtype().equal(dtype) &&
                      std::equal(shape.begin(), shape.end(), array.shape(),
                                 array.shape() + array.ndim());
    if (!fits || (array.flags() & kLayout) != kLayout || !array.writeable()) {
      throw SpecError("out['" + name + "'] has shape " + ShapeString(array) + " and dtype " +
                      py::str(array.dtype()).cast<std::string>() + ", expected " +
                      py::str(py::tuple(py::cast(shape))).cast<std::string>() + " and " +
                      py::str(dtype).cast<std::string>() +
                      ", C-contiguous, aligned and writable");
    }
    apart.Add("out['" + name + "']", array);
  }
}

}  // namespace rollouts
