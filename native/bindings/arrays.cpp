// SPDX-License-Identifier: Apache-2.0
#include "bindings/arrays.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

constexpr std::size_t kMostAxes = 64;  // NumPy's

// Observations have the dtype of their space; flags are bytes that NumPy shows as bool.
py::dtype DTypeOf(const StepArray& array, const EnvSpec& spec) {
  if (array.is_obs) return NumpyDType(spec.observation.dtype);
  return array.is_flag ? py::dtype::of<bool>() : NumpyDType(array.dtype);
}

std::vector<py::ssize_t> ShapeOf(const StepArray& array, const EnvSpec& spec, py::ssize_t rows) {
  std::vector<py::ssize_t> shape{rows};
  if (array.is_obs) {
    const SpaceSpec& space = spec.observation;
    shape.insert(shape.end(), space.shape, space.shape + space.ndim);
  }
  return shape;
}

// "obs, reward, ..."
std::string StepArrayNames() {
  std::string names;
  for (const StepArray& array : kStepArrays) names += (names.empty() ? "" : ", ") + std::string(array.name);
  return names;
}

}  // namespace

std::string ShapeString(const py::array& array) {
  return py::str(array.attr("shape")).cast<std::string>();
}

py::array NewArray(const py::handle& dtype, int ndim, const py::ssize_t* shape,
                   const py::ssize_t* strides, void* data, int flags) {
  const py::detail::npy_api& api = py::detail::npy_api::get();
  // takes over a reference to the dtype
  PyObject* const array = api.PyArray_NewFromDescr_(api.PyArray_Type_, dtype.inc_ref().ptr(), ndim,
                                                    shape, strides, data, flags, nullptr);
  if (!array) throw py::error_already_set();
  return py::reinterpret_steal<py::array>(array);
}

py::array RowsOf(const py::array& array, py::ssize_t first, py::ssize_t count) {
  auto* const whole = py::detail::array_proxy(array.ptr());
  // on the stack: each step makes a view of each array
  std::array<py::ssize_t, kMostAxes> shape;
  std::copy_n(whole->dimensions, whole->nd, shape.begin());
  shape[0] = count;
  py::array rows = NewArray(whole->descr, whole->nd, shape.data(), whole->strides,
                            whole->data + first * whole->strides[0], whole->flags);
  const auto& api = py::detail::npy_api::get();
  if (api.PyArray_SetBaseObject_(rows.ptr(), array.inc_ref().ptr()) != 0) {
    throw py::error_already_set();
  }
  return rows;
}

py::array FrameArray(const Frame& frame) {
  py::array_t<std::uint8_t> array({frame.height, frame.width, 3});
  std::copy(frame.rgb.begin(), frame.rgb.end(), array.mutable_data());
  return array;
}

py::dict WorldDict(const WorldArrays& arrays) {
  py::dict world;
  for (const WorldArray& each : arrays) {
    py::array array(NumpyDType(each.dtype), each.shape);
    std::copy(each.bytes.begin(), each.bytes.end(),
              static_cast<std::uint8_t*>(array.mutable_data()));
    world[py::str(each.name)] = array;
  }
  return world;
}

py::tuple InfoNames(const EnvSpec& spec) {
  py::tuple names(spec.num_infos);
  for (std::int32_t i = 0; i < spec.num_infos; ++i) names[i] = py::str(spec.infos[i].name);
  return names;
}

py::tuple MakeArrays(const std::shared_ptr<BatchBuffer>& buffer, const EnvSpec& spec) {
  // each array keeps the buffer alive, even after the pool has given it up
  const py::capsule owner(new std::shared_ptr<BatchBuffer>(buffer), [](void* pointer) {
    delete static_cast<std::shared_ptr<BatchBuffer>*>(pointer);
  });
  // the buffer's own memory: arrays that a caller gives as `out` replace it later
  const BatchView& view = buffer->view();
  const StepPointers pointers = PointersOf(view);
  // same-step autoreset: infos of the episode that began follow those of the step
  const bool with_begun = spec.reset_infos && view.final_obs;
  py::list groups;
  AppendGroupArrays(spec, view, buffer->rows(), owner, groups);
  const std::size_t end = pointers.size() + spec.num_infos * (with_begun ? 2 : 1);
  py::tuple arrays(end + groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) arrays[end + i] = groups[i];
  for (std::size_t field = 0; field < pointers.size(); ++field) {
    arrays[field] = pointers[field]
                        ? py::object(py::array(DTypeOf(kStepArrays[field], spec),
                                               ShapeOf(kStepArrays[field], spec, buffer->rows()),
                                               {}, pointers[field], owner))
                        : py::none();
  }
  for (std::int32_t i = 0; i < spec.num_infos; ++i) {
    const InfoSpec& info = spec.infos[i];
    std::vector<py::ssize_t> shape{buffer->rows()};
    if (info.length != InfoSpec::kNumber) shape.push_back(info.length);
    // info columns follow the fields that all environments have
    const std::size_t at = pointers.size() + i;
    arrays[at] = py::array(NumpyDType(info.dtype), shape, {}, view.infos[i], owner);
    if (with_begun) {
      arrays[at + spec.num_infos] =
          py::array(NumpyDType(info.dtype), shape, {}, view.begun_infos[i], owner);
    }
  }
  return arrays;
}

NumpyUsers::~NumpyUsers() {
  const AcquireGil gil;
  // released here, with the GIL: the destructors of members run after the GIL is given back
  arrays_.release().dec_ref();
}

bool NumpyUsers::None() const {
  // views hold their array, tensors and DLPack capsules hold a view
  if (Py_REFCNT(arrays_.ptr()) > 1) return false;
  return std::all_of(arrays_.begin(), arrays_.end(), [](const py::handle array) {
    return array.is_none() || Py_REFCNT(array.ptr()) == 1;
  });
}

void ApartArrays::Add(const std::string& where, const py::array& array) {
  const auto* const begin = static_cast<const std::uint8_t*>(array.data());
  const std::uint8_t* const end = begin + array.nbytes();
  for (const Part& part : parts_) {
    if (begin < part.end && part.begin < end) {
      throw SpecError(part.where + " and " + where +
                      " share memory: give each an array of its own");
    }
  }
  parts_.push_back({where, begin, end});
}

py::array CheckedOut(const std::string& where, const py::object& value, const py::dtype& dtype,
                     const std::vector<py::ssize_t>& shape) {
  if (!py::isinstance<py::array>(value)) {
    throw DTypeError(where + " must be a NumPy array, got " +
                     py::str(py::type::of(value)).cast<std::string>());
  }
  const auto array = py::reinterpret_borrow<py::array>(value);
  const bool fits = array.dtype().equal(dtype) &&
                    std::equal(shape.begin(), shape.end(), array.shape(),
                               array.shape() + array.ndim());
  // threads write rows by pointer
  constexpr int kLayout =
      py::detail::npy_api::NPY_ARRAY_ALIGNED_ | py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_;
  if (!fits || (array.flags() & kLayout) != kLayout || !array.writeable()) {
    throw SpecError(where + " has shape " + ShapeString(array) + " and dtype " +
                    py::str(array.dtype()).cast<std::string>() + ", expected " +
                    py::str(py::tuple(py::cast(shape))).cast<std::string>() + " and " +
                    py::str(dtype).cast<std::string>() +
                    ", C-contiguous, aligned and writable: one row per environment sent");
  }
  return array;
}

OutArrays::OutArrays(const py::object& out, const EnvSpec& spec, std::size_t rows,
                     bool with_final_obs)
    : num_groups_(spec.num_groups) {
  if (!py::isinstance<py::dict>(out)) {
    throw DTypeError("out must be a dict of arrays such as {'obs': array}, got " +
                     py::str(py::type::of(out)).cast<std::string>());
  }
  ApartArrays apart;
  for (const auto& [key, value] : py::cast<py::dict>(out)) {
    const auto name = py::str(key).cast<std::string>();
    if (name == "final_obs" && !with_final_obs) {
      throw SpecError("out['final_obs'] needs autoreset_mode='same_step'");
    }
    const auto object = py::reinterpret_borrow<py::object>(value);
    const auto of_group = std::find(std::begin(kGroupArrays), std::end(kGroupArrays), name);
    if (num_groups_ > 0 && of_group != std::end(kGroupArrays)) {
      groups_.Take(spec, name, object, rows, apart);
      continue;
    }
    const auto* found = std::find_if(std::begin(kStepArrays), std::end(kStepArrays),
                                     [&](const StepArray& array) { return name == array.name; });
    if (found == std::end(kStepArrays)) {
      throw SpecError("out has the unknown key '" + name + "'; expected some of " + StepArrayNames() +
                      (num_groups_ > 0 ? ", active" : ""));
    }
    const std::string where = "out['" + name + "']";
    const py::array array = CheckedOut(where, object, DTypeOf(*found, spec),
                                       ShapeOf(*found, spec, static_cast<py::ssize_t>(rows)));
    apart.Add(where, array);
    arrays_[static_cast<std::size_t>(found - std::begin(kStepArrays))] = array;
  }
  // not given: the pool's own array
  StepPointers pointers{};
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    if (arrays_[i]) pointers[i] = py::reinterpret_borrow<py::array>(arrays_[i]).mutable_data();
  }
  view_ = ViewOf(pointers);
  view_.groups = groups_.views().data();
  view_.num_groups = num_groups_;
}

OutArrays& OutArrays::operator=(OutArrays&& other) noexcept {
  arrays_ = std::move(other.arrays_);
  groups_ = std::move(other.groups_);
  num_groups_ = other.num_groups_;
  view_ = other.view_;
  // this view points to its own groups
  view_.groups = groups_.views().data();
  return *this;
}

void OutArrays::PutInto(py::tuple& fields) const {
  for (std::size_t field = 0; field < kNumStepArrays; ++field) {
    if (arrays_[field]) fields[field] = arrays_[field];
  }
  // the groups' arrays come last
  groups_.PutInto(fields, fields.size() - static_cast<std::size_t>(num_groups_) * kNumGroupArrays);
}

}  // namespace rollouts
