// SPDX-License-Identifier: Apache-2.0
// Loads MuJoCo, and reads the content of its states.
#include "engines/mujoco_library.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "engines/pixels/gl_context.h"
#include "rollouts/engines/mujoco_parts.h"
#include "rollouts/engines/mujoco_physics.h"
#include "rollouts/envs/dm_control/dmc_task.h"
#include "rollouts/pool/cpu_pool.h"
#include "rollouts/support/state.h"

namespace py = pybind11;

namespace rollouts {
namespace {

// An environment within an entry of VectorEnv.get_state; borrows from it.
std::span<const std::uint8_t> EnvInside(const std::string_view sealed) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(sealed.data());
  return CpuPool::EnvInside(StateInside({bytes, sealed.size()}));
}

// The mjSTATE_INTEGRATION of a state, packed as by the release that saved it.
py::array PhysicsState(const std::string_view sealed) {
  StateReader reader(EnvInside(sealed));
  const std::vector<double> numbers = Physics::ReadNumbers(reader).numbers;
  return py::array_t<double>(static_cast<py::ssize_t>(numbers.size()), numbers.data());
}

py::dict PhysicsFields(const std::string_view sealed) {
  StateReader reader(EnvInside(sealed));
  py::dict fields;
  for (const auto& [name, values] : OwnFieldsIn(reader)) {
    fields[py::str(name)] =
        py::bytes(reinterpret_cast<const char*>(values.data()), values.size());
  }
  return fields;
}

py::bytes EnvState(const std::string_view sealed) {
  const auto state = EnvInside(sealed);
  return py::bytes(reinterpret_cast<const char*>(state.data()), state.size());
}

// Calls kRead; the message of its SpecError continues a sentence that begins with the state's name.
template <auto kRead>
auto ReadState(const py::bytes& state) {
  try {
    return kRead(state);
  } catch (const SpecError& error) {
    throw SpecError(std::string("the state ") + error.what());
  }
}

}  // namespace

void BindMujoco(py::module_& module) {
  module.attr("MUJOCO_RELEASES") = py::tuple(py::cast(MujocoReleaseNames()));
  module.def("load_mujoco", &LoadMujoco, py::arg("so_path"), py::arg("version"),
             "Resolves MuJoCo's functions in the library of the imported mujoco.");
  py::class_<PhysicsModel, std::shared_ptr<PhysicsModel>>(module, "PhysicsModel")
      .def_property_readonly("xml_path", &PhysicsModel::xml_path)
      .def("binary",
           [](const PhysicsModel& self) {
             const std::vector<std::uint8_t> bytes = BinaryOf(self);
             return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
           });
  module.def(
      "physics_model",
      [](const std::string& xml_path) {
        return std::const_pointer_cast<PhysicsModel>(PhysicsModel::Get(xml_path));
      },
      py::arg("xml_path"), "The model that simulations of a file share while anybody holds it.");
  module.def(
      "mujoco_quaternions",
      [](const std::string& xml_path, const std::string& field) {
        return QuaternionsOf(*PhysicsModel::Get(xml_path), field);
      },
      py::arg("xml_path"), py::arg("field"),
      "Where quaternions begin among the values of a model's field.");
  module.def("physics_fields", &ReadState<PhysicsFields>, py::arg("state"),
             "{name: bytes} of the fields of a model in which a saved environment differs.");
  module.def("learn_mujoco_timer", &LearnPackageTimer, py::arg("folder"),
             "Makes our steps do without the timer of the mujoco package in this folder.");
  module.def("take_lanes_warnings", &TakeLanesWarnings,
             "Sentences on models that lanes were found to step otherwise than MuJoCo, each once.");
  module.def("choose_opengl", &GlContext::Choose, py::arg("library"),
             "Which library observations are drawn with from now on: egl or osmesa.");
  module.def("physics_state", &ReadState<PhysicsState>, py::arg("state"),
             "MuJoCo's own numbers in a saved state of one of its environments.");
  module.def("env_state", &ReadState<EnvState>, py::arg("state"),
             "The environment in a saved state: what get_state of CpuPool returns.");
  module.def(
      "dm_control_models",
      [] {
        py::dict models;
        // Python writes the models, with dm_control's own functions
        for (const dmc::Domain& domain : dmc::Domains()) {
          for (const dmc::TaskEntry& task : domain.tasks) {
            models[task.id] = py::make_tuple(task.model.function, task.model.arguments);
          }
        }
        return models;
      },
      "id -> (function, arguments as JSON) by which dm_control writes a task's model.");
  module.def(
      "mujoco_parts",
      [](const std::string& xml_path, const std::string& option, const std::string& names) {
        py::list parts;
        for (const ModelPart& part :
             FindParts(*PhysicsModel::Get(xml_path), option.c_str(), names)) {
          parts.append(py::make_tuple(part.name, py::tuple(py::cast(part.shape)), PartArray(part),
                                      part.offset));
        }
        return parts;
      },
      py::arg("xml_path"), py::arg("option"), py::arg("names"),
      "[(name, shape, array of mjData, first element)] of the parts of a model that an option of "
      "MuJoCo-v0 names.");
  module.def(
      "mujoco_model_fields",
      [](const std::string& xml_path) { return PhysicsModel::Get(xml_path)->SettableFields(); },
      py::arg("xml_path"), "Names of a model's fields that may be changed.");
}

}  // namespace rollouts
