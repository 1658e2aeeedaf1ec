// SPDX-License-Identifier: Apache-2.0
#include "rollouts/registry/registry.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <vector>

#include "bindings/bindings.h"
#include "rollouts/engines/planar_world.h"

namespace py = pybind11;

namespace rollouts {
namespace {

// One space as plain values; rollouts/specs.py makes the Gymnasium space of it.
py::dict SpaceToDict(const SpaceSpec& space) {
  py::dict result;
  result["n"] = space.n;
  result["dtype"] = NumpyDType(space.dtype);
  std::vector<std::int32_t> shape(space.shape, space.shape + space.ndim);
  // one bound for all elements unless they differ
  const std::int64_t bounds = space.elementwise ? space.size() : 1;
  result["low"] = std::vector<double>(space.low, space.low + bounds);
  result["high"] = std::vector<double>(space.high, space.high + bounds);
  result["elementwise"] = space.elementwise;
  result["multi_discrete"] = space.multi_discrete;
  result["shape"] = py::tuple(py::cast(shape));
  return result;
}

// One entry.
py::dict EntryToDict(const RegistryEntry& entry) {
  py::dict result;
  result["id"] = entry.id;
  result["max_episode_steps"] = entry.max_episode_steps;
  result["reward_threshold"] = entry.reward_threshold;
  result["cpu_only"] = entry.cpu_only;
  result["header"] = entry.header;
  result["type"] = entry.type;
  result["multi_agent"] = entry.multi_agent;
  result["options"] = py::cast(entry.default_options());
  return result;
}

// The spec under these options, which may change the spaces.
py::dict MakeSpecDict(const std::string& id, const py::dict& options) {
  // without the GIL, as this reads a model if an option names one
  const EnvSpec spec = FindEntry(id).make_spec(OptionColumnsFromDict(options));
  py::dict result;
  result["observation"] = SpaceToDict(spec.observation);
  result["action"] = SpaceToDict(spec.action);
  py::list infos;
  for (std::int32_t i = 0; i < spec.num_infos; ++i) {
    const InfoSpec& info = spec.infos[i];
    const py::object length = info.length == InfoSpec::kNumber ? py::object(py::none())
                                                               : py::object(py::int_(info.length));
    infos.append(py::make_tuple(info.name, NumpyDType(info.dtype), length));
  }
  result["infos"] = infos;
  py::list parts;
  for (std::int32_t i = 0; i < spec.num_parts; ++i) {
    const ObservationPart& part = spec.parts[i];
    const std::vector<std::int32_t> shape(part.shape, part.shape + part.ndim);
    const bool of_bytes = spec.observation.dtype == DType::kUint8;
    parts.append(py::make_tuple(part.name, py::tuple(py::cast(shape)),
                                NumpyDType(of_bytes ? part.dtype : spec.observation.dtype)));
  }
  result["observation_parts"] = parts;
  py::list groups;
  for (std::int32_t g = 0; g < spec.num_groups; ++g) {
    const GroupSpec& group = spec.groups[g];
    groups.append(py::make_tuple(group.name, group.num_agents, SpaceToDict(group.observation),
                                 SpaceToDict(group.action)));
  }
  result["groups"] = groups;
  return result;
}

// NumPy's integers and floats count as Python's.
OptionValue ToOptionValue(const std::string& name, const py::handle& value) {
  // bool first: in Python it is an int too
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::str>(value)) return value.cast<std::string>();
  if (PyIndex_Check(value.ptr())) {
    const auto number = py::int_(py::reinterpret_borrow<py::object>(value));
    // -1 is either the number or an error
    const std::int64_t fits = PyLong_AsLongLong(number.ptr());
    if (fits == -1 && PyErr_Occurred()) {
      PyErr_Clear();
      throw SpecError("option '" + name + "' must fit 64 bits, got " +
                      py::str(number).cast<std::string>());
    }
    return fits;
  }
  // PyNumber_Check accepts a complex number, which is no float
  if (PyNumber_Check(value.ptr()) && !PyComplex_Check(value.ptr())) {
    return py::float_(py::reinterpret_borrow<py::object>(value)).cast<double>();
  }
  throw SpecError("option '" + name + "' must be a bool, int, float or str, got " +
                  py::str(py::type::of(value)).cast<std::string>());
}

}  // namespace

py::dtype NumpyDType(DType dtype) {
  switch (dtype) {
    case DType::kUint8: return py::dtype::of<std::uint8_t>();
    case DType::kInt8: return py::dtype::of<std::int8_t>();
    case DType::kInt16: return py::dtype::of<std::int16_t>();
    case DType::kInt32: return py::dtype::of<std::int32_t>();
    case DType::kInt64: return py::dtype::of<std::int64_t>();
    case DType::kFloat32: return py::dtype::of<float>();
    case DType::kFloat64: return py::dtype::of<double>();
  }
  throw SpecError("unknown dtype in an environment's spec");
}

OptionColumns OptionColumnsFromDict(const py::dict& given) {
  OptionColumns columns;
  for (const auto& [key, value] : given) {
    const auto name = key.cast<std::string>();
    std::vector<OptionValue>& column = columns[name];
    if (!py::isinstance<py::list>(value)) {
      // one for all environments
      column.push_back(ToOptionValue(name, value));
      continue;
    }
    // a list has a value for each environment
    for (const py::handle each : py::reinterpret_borrow<py::list>(value)) {
      column.push_back(ToOptionValue(name, each));
    }
  }
  return columns;
}

void BindRegistry(py::module_& module) {
  module.def("has_box2d", &HasBox2D);
  module.def("registry", [] {
    py::list entries;
    for (const RegistryEntry* entry : Registry()) entries.append(EntryToDict(*entry));
    return entries;
  }, "Every line of native/envs.cmake, then every environment that was registered, as a dict.");
  module.def("register_env", [](const std::string& id, std::int32_t max_episode_steps,
                                double reward_threshold, const std::string& header,
                                const std::string& type, const std::string& library) {
    RegisterEnv({id, max_episode_steps, reward_threshold, header, type, library});
  }, py::kw_only(), py::arg("id"), py::arg("max_episode_steps"), py::arg("reward_threshold"),
     py::arg("header"), py::arg("type"), py::arg("library"),
     "Adds the environment of a plug-in to the registry.");
  module.def("own_env_names", [](const std::string& library) {
    const OwnNames names = NamesOf(library);
    return py::make_tuple(names.options, names.infos);
  }, py::arg("library"),
     "Names of the options and infos of a plug-in; raises SpecError where its spaces are wrong.");
  module.def("make_spec", &MakeSpecDict, py::arg("id"), py::arg("options"),
             "The spaces of an environment with these options, as plain values.");
}

}  // namespace rollouts
