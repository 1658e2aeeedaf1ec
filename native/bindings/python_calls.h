// SPDX-License-Identifier: Apache-2.0
// Calls of Python's C API, where pybind11's take too long for each step.
#pragma once

#include <pybind11/pybind11.h>

namespace rollouts {

// Takes the result of such a call: a new reference, or null with the error set, which is thrown.
template <typename Object = pybind11::object>
Object Owned(PyObject* made) {
  if (!made) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<Object>(made);
}

// Makes an interned string for lookups, which compare addresses first.
inline pybind11::str Interned(const char* text) {
  return Owned<pybind11::str>(PyUnicode_InternFromString(text));
}

inline void Put(pybind11::handle dict, pybind11::handle key, pybind11::handle value) {
  if (PyDict_SetItem(dict.ptr(), key.ptr(), value.ptr()) != 0) throw pybind11::error_already_set();
}

}  // namespace rollouts
