// SPDX-License-Identifier: Apache-2.0
// The ViZDoom engine: loading it.
#include "engines/doom/doom_abi.h"

#include <pybind11/pybind11.h>

#include "bindings/bindings.h"

namespace py = pybind11;

namespace rollouts {

void BindDoom(py::module_& module) {
  module.def("load_doom", &DoomLibrary::Load, py::arg("so_path"), py::arg("version"),
             py::arg("game"), py::arg("guardian"),
             "Resolves ViZDoom's symbols in the native module of the imported vizdoom.");
}

}  // namespace rollouts
