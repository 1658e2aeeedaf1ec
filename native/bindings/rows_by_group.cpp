// SPDX-License-Identifier: Apache-2.0
// Results of a batch with several agents for callers: arrays by the names of their groups. Made in
// Python, the dicts would cost a launched step more than all its other work.
#include <pybind11/pybind11.h>

#include <cstddef>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/python_calls.h"

namespace py = pybind11;

namespace rollouts {
namespace {

// The arrays of a group. The groups' arrays come last in a batch, group after group.
enum GroupArray : std::size_t {
  kObs,
  kReward,
  kTerminated,
  kTruncated,
  kActive,
  kEpisodeReturn,
  kFinalObs,
  kNumGroupArrays,
};

// Places of the arrays of environments, in the order of step_arrays.h.
constexpr Py_ssize_t kEnded = 2, kCut = 3, kEnvId = 4, kEpisodeLength = 6;

class RowsByGroup {
 public:
  // `names`: of groups, in order. `keeps_final_obs`: info has final_obs.
  RowsByGroup(const py::tuple& names, bool keeps_final_obs) : keeps_final_obs_(keeps_final_obs) {
    for (const py::handle one : names) names_.push_back(py::reinterpret_borrow<py::object>(one));
  }

  // Results of a step: obs, reward, terminated, truncated and info. All dicts are new.
  py::tuple Step(const py::tuple& arrays) const {
    const py::object info = Owned(PyDict_New());
    Put(info, active_, Of(arrays, kActive));
    Put(info, episode_return_, Of(arrays, kEpisodeReturn));
    Put(info, env_id_, PyTuple_GET_ITEM(arrays.ptr(), kEnvId));
    Put(info, episode_length_, PyTuple_GET_ITEM(arrays.ptr(), kEpisodeLength));
    Put(info, ended_, Ended(arrays));
    if (keeps_final_obs_) Put(info, final_obs_, Of(arrays, kFinalObs));
    return Owned<py::tuple>(PyTuple_Pack(5, Of(arrays, kObs).ptr(), Of(arrays, kReward).ptr(),
                                         Of(arrays, kTerminated).ptr(),
                                         Of(arrays, kTruncated).ptr(), info.ptr()));
  }

  // Arrays of groups, by their names, in the order of GroupArray.
  py::list Columns(const py::tuple& arrays) const {
    py::list columns;
    for (std::size_t one = 0; one < kNumGroupArrays; ++one) {
      columns.append(Of(arrays, static_cast<GroupArray>(one)));
    }
    return columns;
  }

  // Flags of episodes that ended: the first array alone where the engine has no second one.
  static py::object Ended(const py::tuple& arrays) {
    PyObject* const ended = PyTuple_GET_ITEM(arrays.ptr(), kEnded);
    PyObject* const cut = PyTuple_GET_ITEM(arrays.ptr(), kCut);
    if (cut == Py_None) return py::reinterpret_borrow<py::object>(ended);
    return Owned(PyNumber_Or(ended, cut));
  }

  // Actions of the groups in their order, whatever the order of the dict; None where `actions` is
  // no dict, or a dict of other groups.
  py::object InOrder(const py::object& actions) const {
    const auto count = static_cast<Py_ssize_t>(names_.size());
    if (!PyDict_CheckExact(actions.ptr()) || PyDict_GET_SIZE(actions.ptr()) != count) {
      return py::none();
    }
    py::object ordered = Owned(PyList_New(count));
    for (Py_ssize_t g = 0; g < count; ++g) {
      PyObject* const one = PyDict_GetItemWithError(actions.ptr(), NameOf(g));
      if (!one && PyErr_Occurred()) throw py::error_already_set();
      if (!one) return py::none();
      Py_INCREF(one);
      PyList_SET_ITEM(ordered.ptr(), g, one);
    }
    return ordered;
  }

 private:
  PyObject* NameOf(Py_ssize_t group) const { return names_[static_cast<std::size_t>(group)].ptr(); }

  // Dict {group: array}, or the array alone where there is one group.
  py::object Of(const py::tuple& arrays, GroupArray which) const {
    const auto count = static_cast<Py_ssize_t>(names_.size());
    const auto each = static_cast<Py_ssize_t>(kNumGroupArrays);
    const Py_ssize_t first = PyTuple_GET_SIZE(arrays.ptr()) - each * count;
    if (first <= kEpisodeLength) throw py::value_error("a batch without arrays of these groups");
    const Py_ssize_t at = first + static_cast<Py_ssize_t>(which);
    if (count == 1) {
      return py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(arrays.ptr(), at));
    }
    py::object by_group = Owned(PyDict_New());
    for (Py_ssize_t g = 0; g < count; ++g) {
      Put(by_group, NameOf(g), PyTuple_GET_ITEM(arrays.ptr(), at + g * each));
    }
    return by_group;
  }

  const py::str active_ = Interned("active"), episode_return_ = Interned("episode_return");
  const py::str env_id_ = Interned("env_id"), episode_length_ = Interned("episode_length");
  const py::str ended_ = Interned("ended"), final_obs_ = Interned("final_obs");
  std::vector<py::object> names_;
  const bool keeps_final_obs_;
};

}  // namespace

void BindRowsByGroup(py::module_& module) {
  py::class_<RowsByGroup>(module, "RowsByGroup")
      .def(py::init<const py::tuple&, bool>(), py::arg("names"), py::arg("keeps_final_obs"))
      .def("step", &RowsByGroup::Step, py::arg("arrays"))
      .def("columns", &RowsByGroup::Columns, py::arg("arrays"))
      .def("in_order", &RowsByGroup::InOrder, py::arg("actions"))
      .def_static("ended", &RowsByGroup::Ended, py::arg("arrays"));
}

}  // namespace rollouts
