// SPDX-License-Identifier: Apache-2.0
#include "rollouts/registry/plain_loop.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "rollouts/registry/tag_loop.h"

namespace py = pybind11;

namespace rollouts {
namespace {

// PlainLoop with one set of arrays, which every call overwrites.
class PyPlainLoop {
 public:
  PyPlainLoop(const std::string& id, const py::dict& env_options, std::int32_t num_envs,
              std::int32_t max_episode_steps, std::uint64_t seed)
      : loop_(MakePlainLoop(id, OptionColumnsFromDict(env_options), num_envs, max_episode_steps, seed)),
        action_dtype_(NumpyDType(loop_->spec().action.dtype)),
        arrays_(MakeArrays(loop_)) {}

  py::tuple Reset() {
    loop_->Reset();
    return arrays_;
  }

  py::tuple Step(const py::array& actions) {
    // the loop reads them by pointer
    const bool fits = actions.dtype().equal(action_dtype_) && actions.size() == loop_->num_envs() &&
                      (actions.flags() & py::array::c_style);
    if (!fits) {
      throw SpecError("actions must be a contiguous array of " + std::to_string(loop_->num_envs()) +
                      " " + py::str(action_dtype_).cast<std::string>());
    }
    loop_->Step(actions.data());
    return arrays_;
  }

 private:
  static py::tuple MakeArrays(const std::shared_ptr<PlainLoop>& loop) {
    // each array keeps the loop alive, because it shows the loop's memory
    const py::capsule owner(new std::shared_ptr<PlainLoop>(loop), [](void* pointer) {
      delete static_cast<std::shared_ptr<PlainLoop>*>(pointer);
    });
    const SpaceSpec& space = loop->spec().observation;
    const py::ssize_t rows = loop->num_envs();
    std::vector<py::ssize_t> obs_shape{rows};
    obs_shape.insert(obs_shape.end(), space.shape, space.shape + space.ndim);
    const auto column = [&](const py::dtype& dtype, const void* data) {
      return py::array(dtype, {rows}, {}, data, owner);
    };
    return py::make_tuple(py::array(NumpyDType(space.dtype), obs_shape, {}, loop->obs(), owner),
                          column(py::dtype::of<double>(), loop->reward()),
                          column(py::dtype::of<bool>(), loop->terminated()),
                          column(py::dtype::of<bool>(), loop->truncated()));
  }

  const std::shared_ptr<PlainLoop> loop_;
  const py::dtype action_dtype_;
  const py::tuple arrays_;  // (obs, reward, terminated, truncated)
};

using Actions = py::array_t<std::int32_t, py::array::c_style>;

void StepTagLoop(TagLoop& loop, const Actions& actions) {
  const std::int64_t expected = std::int64_t{2} * loop.num_envs() * loop.num_agents();
  if (actions.size() != expected) {
    throw SpecError("actions must be (" + std::to_string(loop.num_envs()) + ", " +
                    std::to_string(loop.num_agents()) + ", 2) int32");
  }
  loop.Step(actions.data());
}

}  // namespace

void BindPlainLoop(py::module_& module) {
  py::class_<PyPlainLoop>(module, "PlainLoop")
      .def(py::init<const std::string&, const py::dict&, std::int32_t, std::int32_t,
                    std::uint64_t>(),
           py::arg("id"), py::arg("env_options"), py::arg("num_envs"),
           py::arg("max_episode_steps"), py::arg("seed"))
      .def("reset", &PyPlainLoop::Reset)
      .def("step", &PyPlainLoop::Step, py::arg("actions"));
  py::class_<TagLoop>(module, "TagLoop")
      .def(py::init([](const py::dict& env_options, std::int32_t num_envs,
                       std::int32_t max_episode_steps) {
             return TagLoop(ReadConfig<TagContinuous>(OptionColumnsFromDict(env_options), 0),
                            num_envs, max_episode_steps);
           }),
           py::arg("env_options"), py::arg("num_envs"), py::arg("max_episode_steps"))
      .def("reset", &TagLoop::Reset)
      .def("step", &StepTagLoop, py::arg("actions"))
      .def_property_readonly("reward", [](const TagLoop& loop) { return py::cast(loop.reward()); });
}

}  // namespace rollouts
