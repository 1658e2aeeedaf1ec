// SPDX-License-Identifier: Apache-2.0
// Loading MuJoCo.
#include "engines/mujoco_library.h"

#include <pybind11/pybind11.h>

#include "bindings.h"

namespace py = pybind11;

namespace rollouts {

void BindMujoco(py::module_& module) {
  module.attr("MUJOCO_VERSION") = MujocoHeaderVersion();
  module.def("load_mujoco", &LoadMujoco, py::arg("so_path"), py::arg("version"),
             "Resolves MuJoCo's functions in the library of the imported mujoco.");
}

}  // namespace rollouts
