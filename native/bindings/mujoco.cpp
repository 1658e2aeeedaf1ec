// SPDX-License-Identifier: Apache-2.0
// Loading MuJoCo.
#include "engines/mujoco_library.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "rollouts/engines/mujoco_parts.h"

namespace py = pybind11;

namespace rollouts {

void BindMujoco(py::module_& module) {
  module.attr("MUJOCO_RELEASES") = py::tuple(py::cast(MujocoReleaseNames()));
  module.def("load_mujoco", &LoadMujoco, py::arg("so_path"), py::arg("version"),
             "Resolves MuJoCo's functions in the library of the imported mujoco.");
  module.def(
      "mujoco_parts",
      [](const std::string& xml_path, const std::string& option, const std::string& names) {
        py::list parts;
        for (const ModelPart& part :
             FindParts(*PhysicsModel::Get(xml_path), option.c_str(), names)) {
          parts.append(py::make_tuple(part.name, py::tuple(py::cast(part.shape))));
        }
        return parts;
      },
      py::arg("xml_path"), py::arg("option"), py::arg("names"),
      "[(name, shape)] of the parts of a model that an option of MuJoCo-v0 names.");
}

}  // namespace rollouts
