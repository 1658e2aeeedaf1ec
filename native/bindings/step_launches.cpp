// SPDX-License-Identifier: Apache-2.0
// Makes a step of a GPU's pool in one native call: checks actions, chooses a row set, fills in its
// launch block, and launches the kernel.
#include <pybind11/pybind11.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/cuda_entry.h"
#include "bindings/python_calls.h"
#include "bindings/row_sets.h"

namespace py = pybind11;

namespace rollouts {
namespace {

struct StepNames {
  py::str dtype = Interned("dtype");
  py::str shape = Interned("shape");
  py::str device = Interned("device");
  py::str is_contiguous = Interned("is_contiguous");
  py::str data_ptr = Interned("data_ptr");
};

py::object CallMethod(const py::str& name, py::handle of) {
  PyObject* const self = of.ptr();
  return Owned(PyObject_VectorcallMethod(name.ptr(), &self, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

bool HasValue(py::handle of, const py::str& name, const py::object& expected) {
  const py::object value = Owned(PyObject_GetAttr(of.ptr(), name.ptr()));
  const int is_equal = PyObject_RichCompareBool(value.ptr(), expected.ptr(), Py_EQ);
  if (is_equal < 0) throw py::error_already_set();
  return is_equal != 0;
}

// Tensors of actions that a kernel can read unchanged.
struct ActionForm {
  py::list dtypes;  // (dtype, bytes of an element), of which one must match
  py::object shape, device;
};

// An action's place in a launch block.
struct ActionElement {
  void* address;
  std::int32_t bytes;
};

class StepLaunches {
 public:
  // `entry`: a CudaEntry, or a function (launch, num_blocks, num_threads, shared_bytes) of the
  // host. `recording`: returns None unless Python records kernels; called where it is not None.
  StepLaunches(RowSets& sets, const py::list& forms, bool in_list, py::object tensor_type,
               std::size_t actions_at, std::size_t bytes_at, py::object entry, py::tuple grid,
               py::object recording)
      : sets_(sets),
        in_list_(in_list),
        tensor_type_(std::move(tensor_type)),
        actions_at_(actions_at),
        bytes_at_(bytes_at),
        entry_(std::move(entry)),
        cuda_(py::isinstance<CudaEntry>(entry_) ? entry_.cast<CudaEntry*>() : nullptr),
        grid_args_(std::move(grid)),
        grid_{grid_args_[0].cast<std::uint32_t>(), grid_args_[1].cast<std::uint32_t>(),
              grid_args_[2].cast<std::uint32_t>()},
        recording_(std::move(recording)) {
    for (const py::handle one : forms) {
      const auto form = py::reinterpret_borrow<py::tuple>(one);
      forms_.push_back({form[0].cast<py::list>(), form[1], form[2]});
    }
  }

  // Returns the arrays that the step will have written. Returns None, with nothing done, where the
  // caller has to do the parts itself: for other actions, where no set is free, or while a graph is
  // recorded.
  py::object Step(const py::object& actions) {
    if (!recording_.is_none() && !Owned(PyObject_CallNoArgs(recording_.ptr())).is_none()) {
      return py::none();
    }
    std::vector<ActionElement> elements;
    elements.reserve(forms_.size());
    if (!Read(actions, elements)) return py::none();
    RowSet* const found = sets_.TakeFree();
    if (!found) return py::none();
    // keeps the set's tensors alive during the launch, while other threads run
    const py::tuple arrays = Copy(found->arrays);
    const py::object launch = found->launch;
    std::byte* const block = found->launch_bytes;
    for (std::size_t g = 0; g < elements.size(); ++g) {
      std::memcpy(block + actions_at_ + g * sizeof(void*), &elements[g].address, sizeof(void*));
      std::memcpy(block + bytes_at_ + g * 4, &elements[g].bytes, 4);
    }
    if (cuda_) {
      if (!cuda_->Launch(block, grid_, /*unless_captured=*/true)) return py::none();
    } else {
      entry_(launch, *grid_args_);
    }
    // kept until the next launch on the same stream
    held_ = actions;
    return arrays;
  }

 private:
  static py::tuple Copy(const py::tuple& from) {
    py::tuple to(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      PyTuple_SET_ITEM(to.ptr(), i, PyTuple_GET_ITEM(from.ptr(), i));
      Py_INCREF(PyTuple_GET_ITEM(from.ptr(), i));
    }
    return to;
  }

  bool Read(const py::object& actions, std::vector<ActionElement>& elements) const {
    if (!in_list_) return ReadOne(actions, forms_[0], elements);
    if (!PyList_CheckExact(actions.ptr())) return false;
    if (PyList_GET_SIZE(actions.ptr()) != static_cast<Py_ssize_t>(forms_.size())) return false;
    for (std::size_t g = 0; g < forms_.size(); ++g) {
      const py::handle one = PyList_GET_ITEM(actions.ptr(), static_cast<Py_ssize_t>(g));
      if (!ReadOne(one, forms_[g], elements)) return false;
    }
    return true;
  }

  bool ReadOne(py::handle tensor, const ActionForm& form, std::vector<ActionElement>& elements) const {
    if (reinterpret_cast<PyObject*>(Py_TYPE(tensor.ptr())) != tensor_type_.ptr()) return false;
    const py::object dtype = Owned(PyObject_GetAttr(tensor.ptr(), names_.dtype.ptr()));
    std::int32_t bytes = 0;
    for (const py::handle one : form.dtypes) {
      if (PyTuple_GET_ITEM(one.ptr(), 0) != dtype.ptr()) continue;
      bytes = static_cast<std::int32_t>(PyLong_AsLong(PyTuple_GET_ITEM(one.ptr(), 1)));
    }
    if (bytes == 0 || !HasValue(tensor, names_.shape, form.shape) ||
        !HasValue(tensor, names_.device, form.device) ||
        CallMethod(names_.is_contiguous, tensor).ptr() != Py_True) {
      return false;
    }
    elements.push_back({PyLong_AsVoidPtr(CallMethod(names_.data_ptr, tensor).ptr()), bytes});
    return true;
  }

  const StepNames names_;
  RowSets& sets_;
  std::vector<ActionForm> forms_;
  const bool in_list_;
  const py::object tensor_type_;
  const std::size_t actions_at_, bytes_at_;
  const py::object entry_;
  CudaEntry* const cuda_;  // `entry_`, if it is one
  const py::tuple grid_args_;
  const Grid grid_;
  const py::object recording_;
  py::object held_;
};

}  // namespace

void BindStepLaunches(py::module_& module) {
  py::class_<StepLaunches>(module, "StepLaunches")
      .def(py::init<RowSets&, const py::list&, bool, py::object, std::size_t, std::size_t,
                    py::object, py::tuple, py::object>(),
           py::keep_alive<1, 2>(), py::kw_only(), py::arg("sets"), py::arg("forms"),
           py::arg("in_list"), py::arg("tensor_type"), py::arg("actions_at"), py::arg("bytes_at"),
           py::arg("entry"), py::arg("grid"), py::arg("recording"))
      .def("step", &StepLaunches::Step, py::arg("actions"));
}

}  // namespace rollouts
