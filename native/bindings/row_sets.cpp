// SPDX-License-Identifier: Apache-2.0
#include "bindings/row_sets.h"

#include <utility>

#include "bindings/bindings.h"
#include "bindings/python_calls.h"

namespace py = pybind11;

namespace rollouts {

void RowSets::Add(py::object owner, const py::list& tensors, const py::list& storages,
                  py::tuple arrays, py::object launch, std::uintptr_t launch_address) {
  RowSet set{.owner = std::move(owner),
             .arrays = std::move(arrays),
             .launch = std::move(launch),
             .launch_bytes = reinterpret_cast<std::byte*>(launch_address)};
  for (const py::handle one : tensors) set.tensors.push_back(py::reinterpret_borrow<py::object>(one));
  for (const py::handle one : storages) {
    set.storages.push_back(py::reinterpret_borrow<py::object>(one));
  }
  for (const auto& one : set.tensors) set.free_tensors.push_back(Py_REFCNT(one.ptr()));
  if (!use_count_.is_none()) {
    for (const auto& one : set.storages) set.free_storages.push_back(UseCount(one));
  }
  // inserted after the set that was taken last, and before the oldest
  sets_.insert(sets_.begin() + static_cast<std::ptrdiff_t>(oldest_), std::move(set));
  oldest_ = (oldest_ + 1) % sets_.size();
}

RowSet* RowSets::TakeFree() {
  if (use_count_.is_none()) return nullptr;
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    const std::size_t at = (oldest_ + i) % sets_.size();
    if (IsFree(sets_[at])) {
      oldest_ = (at + 1) % sets_.size();
      return &sets_[at];
    }
  }
  return nullptr;
}

py::object RowSets::Take() {
  const RowSet* const set = TakeFree();
  return set ? set->owner : py::none();
}

py::list RowSets::Owners() const {
  py::list owners;
  for (const RowSet& set : sets_) owners.append(set.owner);
  return owners;
}

void RowSets::Clear() {
  // moved out first, because freeing memory may run Python code, which must see none of the sets
  std::vector<RowSet> cleared;
  cleared.swap(sets_);
  oldest_ = 0;
}

int RowSets::Visit(visitproc visit, void* arg) const {
  for (const RowSet& set : sets_) {
    Py_VISIT(set.owner.ptr());
    Py_VISIT(set.arrays.ptr());
    Py_VISIT(set.launch.ptr());
    for (const auto& one : set.tensors) Py_VISIT(one.ptr());
  }
  return 0;
}

long RowSets::UseCount(const py::object& storage) const {
  PyObject* const argument = storage.ptr();
  const auto count = Owned(PyObject_Vectorcall(use_count_.ptr(), &argument, 1, nullptr));
  return PyLong_AsLong(count.ptr());
}

bool RowSets::IsFree(const RowSet& set) const {
  // counts holders of a tensor itself, and holders of a view of its memory
  for (std::size_t i = 0; i < set.tensors.size(); ++i) {
    if (Py_REFCNT(set.tensors[i].ptr()) != set.free_tensors[i]) return false;
  }
  for (std::size_t i = 0; i < set.storages.size(); ++i) {
    if (UseCount(set.storages[i]) != set.free_storages[i]) return false;
  }
  return true;
}

namespace {

// Makes Python's garbage collector see the objects that sets hold, which may refer back to them.
void AddToGarbageCollection(PyHeapTypeObject* of) {
  PyTypeObject& type = of->ht_type;
  type.tp_flags |= Py_TPFLAGS_HAVE_GC;
  type.tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (!py::detail::is_holder_constructed(self)) return 0;
    return py::cast<RowSets&>(py::handle(self)).Visit(visit, arg);
  };
  type.tp_clear = [](PyObject* self) {
    if (py::detail::is_holder_constructed(self)) py::cast<RowSets&>(py::handle(self)).Clear();
    return 0;
  };
}

}  // namespace

void BindRowSets(py::module_& module) {
  py::class_<RowSets>(module, "RowSets", py::custom_type_setup(AddToGarbageCollection))
      .def(py::init<py::object>(), py::arg("use_count"))
      .def("add", &RowSets::Add, py::arg("owner"), py::arg("tensors"), py::arg("storages"),
           py::arg("arrays"), py::arg("launch"), py::arg("launch_address"))
      .def("take", &RowSets::Take)
      .def("clear", &RowSets::Clear)
      .def_property_readonly("owners", &RowSets::Owners);
}

}  // namespace rollouts
