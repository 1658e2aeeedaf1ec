// SPDX-License-Identifier: Apache-2.0
#include "bindings/replay/replay_state.h"
#include "bindings/gil.h"

#include <utility>

namespace py = pybind11;

namespace rollouts {

py::array AsArray(std::vector<std::uint8_t> bytes) {
  // the array takes the bytes over without a copy, as a state may take gigabytes
  auto owned = std::make_unique<std::vector<std::uint8_t>>(std::move(bytes));
  std::uint8_t* const data = owned->data();
  const auto size = static_cast<py::ssize_t>(owned->size());
  const py::capsule owner(owned.release(), [](void* pointer) {
    delete static_cast<std::vector<std::uint8_t>*>(pointer);
  });
  return py::array(py::dtype::of<std::uint8_t>(), {size}, {}, data, owner);
}

py::array PyStatePieces::Next() {
  std::vector<std::uint8_t> piece;
  {
    const ReleaseGil release;
    // locked after the GIL is released, because the holder of the mutex may wait for the GIL
    const std::lock_guard<std::mutex> lock(*mutex_);
    piece = snapshot_->Next();
  }
  // ends a Python iteration
  if (piece.empty()) throw py::stop_iteration();
  return AsArray(std::move(piece));
}

void BindStatePieces(py::module_& module) {
  py::class_<PyStatePieces>(module, "StatePieces", "What save_state returns, in pieces.")
      .def_property_readonly("nbytes", &PyStatePieces::nbytes)
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", &PyStatePieces::Next);
}

}  // namespace rollouts
