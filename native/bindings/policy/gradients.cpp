// SPDX-License-Identifier: Apache-2.0
// Gradients of a network as Python asks for them: for tests, and for losses of its own.
#include "rollouts/policy/gradients.h"

#include <pybind11/stl.h>

#include <string>

#include "bindings/arrays.h"
#include "bindings/gil.h"
#include "bindings/policy/policy.h"
#include "policy/columns.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

using FloatRows = py::array_t<float, py::array::c_style | py::array::forcecast>;

std::vector<bool> CheckTrained(const policy::Program& program, const std::vector<bool>& trained) {
  if (trained.size() == program.params.size()) return trained;
  throw SpecError("trained has " + std::to_string(trained.size()) + " entries, expected " +
                  std::to_string(program.params.size()) + ": one for each parameter");
}

class PyGradients {
 public:
  PyGradients(const policy::Program& program, const std::vector<bool>& trained)
      : trained_(CheckTrained(program, trained)), gradients_(program, trained_) {}

  // One array for each parameter, or None: sums over rows of `given[o]` (B, size) times how output o
  // changes with the parameter.
  py::list Run(const py::list& params, const FloatRows& obs, const py::list& given) const {
    const policy::Network& network = gradients_.network();
    std::vector<FloatRows> held, outputs;
    std::vector<std::span<const float>> spans;
    for (const py::handle param : params) {
      held.push_back(py::cast<FloatRows>(param));
      spans.emplace_back(held.back().data(), static_cast<std::size_t>(held.back().size()));
    }
    for (const py::handle array : given) outputs.push_back(py::cast<FloatRows>(array));
    CheckShapes(obs, outputs);
    policy::Gradients::Weights weights;
    gradients_.Pack(spans, weights);
    py::list arrays;
    std::vector<float*> to;
    for (std::size_t i = 0; i < trained_.size(); ++i) {
      FloatRows array(trained_[i] ? network.program().params[i].size : 0);
      std::fill_n(array.mutable_data(), array.size(), 0.0f);
      to.push_back(array.mutable_data());
      arrays.append(trained_[i] ? py::object(array) : py::none());
    }
    const float* rows = obs.data();
    const std::int64_t size = network.input_size();
    const auto load = [&](std::int64_t first, std::int32_t columns, float* columns_to) {
      policy::GatherColumns(rows + first * size, columns, size, columns_to);
    };
    const auto loss = [&](const policy::ChunkOutputs& chunk) {
      for (std::size_t o = 0; o < outputs.size(); ++o) {
        const std::int32_t features = network.output_size(o);
        const float* from = outputs[o].data() + chunk.first * features;
        float* gradient = chunk.gradient(o);
        for (std::int32_t i = 0; i < chunk.columns; ++i) {
          for (std::int32_t k = 0; k < features; ++k) {
            gradient[k * policy::kColumns + i] += *from++;
          }
        }
      }
    };
    const ReleaseGil no_gil;
    policy::Gradients::Room room;
    std::vector<float> sums(static_cast<std::size_t>(gradients_.num_sums()), 0.0f);
    gradients_.Run(weights, 0, obs.shape(0), load, loss, room, sums.data());
    gradients_.Unpack(sums.data(), to);
    return arrays;
  }

 private:
  void CheckShapes(const FloatRows& obs, const std::vector<FloatRows>& given) const {
    const policy::Network& network = gradients_.network();
    bool fits = obs.ndim() == 2 && obs.shape(1) == network.input_size() &&
                given.size() == network.program().outputs.size();
    for (std::size_t o = 0; fits && o < given.size(); ++o) {
      fits = given[o].ndim() == 2 && given[o].shape(0) == obs.shape(0) &&
             given[o].shape(1) == network.output_size(o);
    }
    if (!fits) throw SpecError("gradients are (B, size) for each output of the network");
  }

  std::vector<bool> trained_;
  policy::Gradients gradients_;
};

}  // namespace

void BindGradients(py::module_& module) {
  py::class_<PyGradients>(module, "Gradients")
      .def(py::init([](std::int32_t obs_size, const py::list& ops, const py::list& params,
                       std::vector<std::int32_t> outputs, std::vector<std::int32_t> states,
                       const std::vector<bool>& trained) {
             return PyGradients(
                 ReadProgram(obs_size, ops, params, std::move(outputs), std::move(states)), trained);
           }),
           py::arg("obs_size"), py::arg("ops"), py::arg("params"), py::arg("outputs"),
           py::arg("states"), py::arg("trained"))
      .def("run", &PyGradients::Run, py::arg("params"), py::arg("obs"), py::arg("given"));
}

}  // namespace rollouts
