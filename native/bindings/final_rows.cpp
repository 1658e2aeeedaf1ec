// SPDX-License-Identifier: Apache-2.0
// final_obs and final_info of same-step autoreset in Gymnasium's layout. Only rows that ended cost
// anything: most batches of a light environment have one, and made in Python they cost several
// times the step.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstring>
#include <string>
#include <vector>

#include "bindings.h"

namespace py = pybind11;

namespace rollouts {
namespace {

using BoolArray = py::array_t<bool, py::array::c_style>;
using py::detail::array_proxy;
using py::detail::npy_api;
using Rows = std::vector<py::ssize_t>;

// Strings of which a step uses the same ones again and again; they live as long as the process.
class Names {
 public:
  static Names& All() {
    static Names& names = *new Names;
    return names;
  }

  // "_name": where Gymnasium puts the rows in which `name` is valid.
  py::handle MaskOf(const py::handle& name) {
    if (PyObject* found = PyDict_GetItemWithError(masks_.ptr(), name.ptr())) return found;
    const py::str mask("_" + py::str(name).cast<std::string>());
    masks_[name] = mask;
    return PyDict_GetItemWithError(masks_.ptr(), name.ptr());
  }

  const py::str final_obs{"final_obs"};
  const py::str final_info{"final_info"};

 private:
  py::dict masks_;
};

void Put(const py::dict& dict, const py::handle& key, const py::handle& value) {
  if (PyDict_SetItem(dict.ptr(), key.ptr(), value.ptr()) != 0) throw py::error_already_set();
}

// An array whose content, if it has no `data`, is not set but for objects, which are null.
py::array NewArray(const py::handle& dtype, int ndim, const py::ssize_t* shape,
                   const py::ssize_t* strides = nullptr, void* data = nullptr, int flags = 0) {
  const npy_api& api = npy_api::get();
  PyObject* const array = api.PyArray_NewFromDescr_(api.PyArray_Type_, dtype.inc_ref().ptr(), ndim,
                                                    shape, strides, data, flags, nullptr);
  if (!array) throw py::error_already_set();
  return py::reinterpret_steal<py::array>(array);
}

// array[row] as Python indexes it: a view, or a scalar of an array of one axis.
py::object RowOf(const py::array& array, py::ssize_t row) {
  if (array.ndim() == 1) return array[py::int_(row)];
  auto* const whole = array_proxy(array.ptr());
  py::array view = NewArray(whole->descr, whole->nd - 1, whole->dimensions + 1, whole->strides + 1,
                            whole->data + row * whole->strides[0], whole->flags);
  if (npy_api::get().PyArray_SetBaseObject_(view.ptr(), array.inc_ref().ptr()) != 0) {
    throw py::error_already_set();
  }
  return view;
}

// (B,) object: the rows that ended, None elsewhere.
py::array FinalObs(const py::array& final_obs, py::ssize_t num_rows, const Rows& ended) {
  static const py::handle object_dtype = npy_api::get().PyArray_DescrFromType_(npy_api::NPY_OBJECT_);
  py::array result = NewArray(object_dtype, 1, &num_rows);
  auto** const items = reinterpret_cast<PyObject**>(array_proxy(result.ptr())->data);
  for (py::ssize_t row = 0; row < num_rows; ++row) items[row] = py::none().release().ptr();
  for (const py::ssize_t row : ended) {
    Py_SETREF(items[row], RowOf(final_obs, row).release().ptr());
  }
  return result;
}

// Whether the rows lie in memory as NumPy lays out an array of their shape.
bool HasDenseRows(const py::array& array) {
  py::ssize_t stride = array.itemsize();
  for (py::ssize_t axis = array.ndim() - 1; axis > 0; --axis) {
    if (array.shape(axis) != 1 && array.strides(axis) != stride) return false;
    stride *= array.shape(axis);
  }
  return true;
}

// Zeros, or None for objects, but for the rows that ended.
py::array OnlyEnded(const py::array& values, const Rows& ended) {
  auto* const from = array_proxy(values.ptr());
  py::array result = NewArray(from->descr, from->nd, from->dimensions);
  if (values.dtype().kind() == 'O' || !HasDenseRows(values)) {
    result[py::ellipsis()] = py::int_(0);
    for (const py::ssize_t row : ended) result[py::int_(row)] = values[py::int_(row)];
    return result;
  }
  char* const to = array_proxy(result.ptr())->data;
  const auto size = static_cast<std::size_t>(result.nbytes() / values.shape(0));
  std::memset(to, 0, static_cast<std::size_t>(result.nbytes()));
  for (const py::ssize_t row : ended) {
    std::memcpy(to + row * size, from->data + row * from->strides[0], size);
  }
  return result;
}

void CheckRows(const py::handle& name, const py::array& array, py::ssize_t num_rows) {
  if (array.ndim() > 0 && array.shape(0) == num_rows) return;
  throw SpecError(py::str(name).cast<std::string>() + " has not one row for each of the " +
                  std::to_string(num_rows) + " environments");
}

// What same-step autoreset began takes the place of what it ended.
void PutBegun(const py::dict& info, const py::dict& begun, const Rows& ended) {
  for (const auto& [name, values] : begun) {
    const auto from = py::cast<py::array>(values);
    auto to = py::cast<py::array>(info[name]);
    if (!HasDenseRows(from) || !HasDenseRows(to) || from.nbytes() != to.nbytes() ||
        !from.dtype().equal(to.dtype())) {
      throw SpecError(py::str(name).cast<std::string>() + " is not the same column as begun");
    }
    const auto size = static_cast<std::size_t>(to.nbytes() / to.shape(0));
    auto* const rows = static_cast<char*>(to.mutable_data());
    const auto* const begun_rows = static_cast<const char*>(from.data());
    for (const py::ssize_t row : ended) {
      std::memcpy(rows + row * to.strides(0), begun_rows + row * from.strides(0), size);
    }
  }
}

bool AddFinal(const py::dict& info, const py::array& final_obs, const BoolArray& terminated,
              const BoolArray& truncated, const py::dict& begun) {
  const py::ssize_t num_rows = terminated.size();
  CheckRows(py::str("truncated"), truncated, num_rows);
  Rows ended;
  const bool* const terminated_rows = terminated.data();
  const bool* const truncated_rows = truncated.data();
  for (py::ssize_t row = 0; row < num_rows; ++row) {
    if (terminated_rows[row] | truncated_rows[row]) ended.push_back(row);
  }
  if (ended.empty()) return false;

  Names& names = Names::All();
  CheckRows(names.final_obs, final_obs, num_rows);
  py::array mask = NewArray(terminated.dtype(), 1, &num_rows);
  auto* const marks = reinterpret_cast<bool*>(array_proxy(mask.ptr())->data);
  for (py::ssize_t row = 0; row < num_rows; ++row) {
    marks[row] = terminated_rows[row] | truncated_rows[row];
  }
  py::dict final_info;
  for (const auto& [name, values] : info) {
    const auto column = py::cast<py::array>(values);
    CheckRows(name, column, num_rows);
    Put(final_info, name, OnlyEnded(column, ended));
    Put(final_info, names.MaskOf(name), mask);
  }
  PutBegun(info, begun, ended);
  Put(info, names.final_obs, FinalObs(final_obs, num_rows, ended));
  Put(info, names.MaskOf(names.final_obs), mask);
  Put(info, names.final_info, final_info);
  Put(info, names.MaskOf(names.final_info), mask);
  return true;
}

}  // namespace

void BindFinalRows(py::module_& module) {
  module.def("add_final", &AddFinal, py::arg("info"), py::arg("final_obs"), py::arg("terminated"),
             py::arg("truncated"), py::arg("begun") = py::dict());
}

}  // namespace rollouts
