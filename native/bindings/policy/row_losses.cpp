// SPDX-License-Identifier: Apache-2.0
// Gradient steps on losses that are programs themselves, for Python.
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/gil.h"
#include "bindings/policy/policy.h"
#include "bindings/policy/trained_sources.h"
#include "rollouts/policy/row_loss_learner.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

using FloatRows = py::array_t<float, py::array::c_style | py::array::forcecast>;

class PyRowLossLearner {
 public:
  PyRowLossLearner(const policy::Program& program, const py::list& views,
                   const std::vector<bool>& trained, std::int32_t num_threads)
      : sources_(views, program),
        learner_(program, sources_.views(), CheckTrained(program, trained), num_threads) {}

  // (loss, norm of the gradients, outputs (B, size of all)) of the weights before the step.
  py::tuple Update(const py::list& sources, const FloatRows& rows,
                   const std::optional<double>& max_norm, const std::string& clip_by,
                   const std::optional<double>& timeout_s, const py::object& average) {
    const policy::ClipBy by = ClipByOf(clip_by);
    return Compute(sources, rows, timeout_s, average, [&](const std::vector<policy::Source>& read) {
      learner_.Apply(read, max_norm, by);
    });
  }

  // The same without the gradient step, which `Apply` makes.
  py::tuple ComputeOnly(const py::list& sources, const FloatRows& rows,
                        const std::optional<double>& timeout_s, const py::object& average) {
    return Compute(sources, rows, timeout_s, average, [](const std::vector<policy::Source>&) {});
  }

  void Apply(const py::list& sources, const std::optional<double>& max_norm,
             const std::string& clip_by) {
    const policy::ClipBy by = ClipByOf(clip_by);
    const std::vector<policy::Source> read = sources_.Read(sources);
    UpdateLimit limit(std::nullopt);
    lock_.Run(limit.stop(), [&] { learner_.Apply(read, max_norm, by); });
  }

  std::int64_t num_steps() const { return learner_.num_steps(); }

 private:
  template <typename Then>
  py::tuple Compute(const py::list& sources, const FloatRows& rows,
                    const std::optional<double>& timeout_s, const py::object& average,
                    Then&& then) {
    const std::vector<policy::Source> read = sources_.Read(sources);
    const policy::MeanOverProcesses mean = MeanBy(average);
    const std::int64_t size = learner_.network().input_size();
    if (rows.ndim() != 2 || rows.shape(1) != size || rows.shape(0) < 1) {
      throw SpecError("rows have shape " + ShapeString(rows) + ", expected (B, " +
                      std::to_string(size) + "), B at least 1");
    }
    const py::ssize_t count = rows.shape(0);
    py::array_t<float> outputs({count, static_cast<py::ssize_t>(learner_.num_outputs())});
    float* const to = outputs.mutable_data();
    policy::RowLossReport report;
    UpdateLimit limit(timeout_s);
    const policy::UpdateStop stop = limit.stop();
    lock_.Run(stop, [&] {
      report = learner_.Compute(read, rows.data(), count, to, stop, mean);
      then(read);
    });
    return py::make_tuple(report.loss, report.norm, outputs);
  }

  LearnerLock lock_;
  const TrainedSources sources_;
  policy::RowLossLearner learner_;
};

// Moves each of `targets` towards the array at the same place of `arrays`.
void MoveTowards(const py::list& arrays, const py::list& targets, float share) {
  if (arrays.size() != targets.size()) throw SpecError("there is not one target for each array");
  std::vector<std::pair<const float*, float*>> pairs;
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    pairs.emplace_back(MutableFloats(arrays[i]), MutableFloats(targets[i]));
    sizes.push_back(py::array(arrays[i]).size());
    if (py::array(targets[i]).size() == sizes[i]) continue;
    throw SpecError("a target is of another size than its array");
  }
  const ReleaseGil no_gil;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    policy::MoveTowards(sizes[i], pairs[i].first, share, pairs[i].second);
  }
}

}  // namespace

void BindRowLosses(py::module_& module) {
  py::class_<PyRowLossLearner>(module, "RowLossLearner")
      .def(py::init([](std::int32_t obs_size, const py::list& ops, const py::list& params,
                       std::vector<std::int32_t> outputs, const py::list& views,
                       const std::vector<bool>& trained, std::int32_t num_threads) {
             return std::make_unique<PyRowLossLearner>(
                 ReadProgram(obs_size, ops, params, std::move(outputs), {}), views, trained,
                 num_threads);
           }),
           py::arg("obs_size"), py::arg("ops"), py::arg("params"), py::arg("outputs"),
           py::arg("views"), py::arg("trained"), py::arg("num_threads"))
      .def("update", &PyRowLossLearner::Update, py::arg("sources"), py::arg("rows"),
           py::arg("max_norm"), py::arg("clip_by"), py::arg("timeout_s") = py::none(),
           py::arg("average") = py::none())
      .def("compute", &PyRowLossLearner::ComputeOnly, py::arg("sources"), py::arg("rows"),
           py::arg("timeout_s") = py::none(), py::arg("average") = py::none())
      .def("apply", &PyRowLossLearner::Apply, py::arg("sources"), py::arg("max_norm"),
           py::arg("clip_by"))
      .def_property_readonly("num_steps", &PyRowLossLearner::num_steps);
  module.def("move_towards", &MoveTowards, py::arg("arrays"), py::arg("targets"), py::arg("share"));
}

}  // namespace rollouts
