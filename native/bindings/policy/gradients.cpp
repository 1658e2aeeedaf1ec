// SPDX-License-Identifier: Apache-2.0
// Gradients of a network as Python asks for them: for tests, and for losses of its own.
#include "rollouts/policy/gradients.h"

#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "bindings/arrays.h"
#include "bindings/gil.h"
#include "bindings/policy/policy.h"
#include "policy/columns.h"
#include "rollouts/policy/ppo_learner.h"
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

using Longs = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;

float* MutableFloats(const py::handle& array) {
  auto held = py::cast<py::array_t<float, py::array::c_style>>(array);
  if (held.ptr() != array.ptr()) throw SpecError("weights are C-contiguous arrays of float32");
  return held.mutable_data();
}

class PyPpoLearner {
 public:
  PyPpoLearner(const policy::Program& program, const py::list& views,
               const std::vector<bool>& trained, const policy::Head& head,
               std::vector<std::int32_t> nvec, std::int32_t num_threads)
      : learner_(program, ReadViews(views), CheckTrained(program, trained), head, std::move(nvec),
                 num_threads) {}

  // `sources`: (weights, kept) of each array of the module; `kept` is (means, squares, steps made,
  // settings), or None where it is not trained.
  // Reports (minibatches, kNumLossSums + 1).
  py::array_t<float> Update(const py::list& sources, const py::dict& rows, const Longs& order,
                            std::int64_t minibatch, const py::dict& settings) {
    std::vector<policy::Source> read;
    for (const py::handle item : sources) {
      const auto source = item.cast<py::tuple>();
      policy::Source each{.weights = MutableFloats(source[0]),
                          .size = source[0].cast<py::array>().size()};
      if (!source[1].is_none()) ReadKept(source[1].cast<py::tuple>(), each);
      read.push_back(each);
    }
    policy::ActedRows acted{.count = rows["obs"].cast<py::array>().shape(0)};
    std::vector<FloatRows> held;
    const auto floats = [&](const char* name) -> const float* {
      if (!rows.contains(name)) return nullptr;
      held.push_back(rows[name].cast<FloatRows>());
      return held.back().data();
    };
    acted.obs = floats("obs");
    acted.box = floats("box");
    acted.log_prob = floats("log_prob");
    acted.advantage = floats("advantage");
    acted.target = floats("target");
    acted.value = floats("value");
    Longs index;
    if (rows.contains("index")) {
      index = rows["index"].cast<Longs>();
      acted.index = index.data();
    }
    const policy::PpoSettings how = ReadSettings(settings);
    std::vector<policy::PpoReport> reports;
    {
      const ReleaseGil no_gil;
      reports = learner_.Update(read, acted, {order.data(), static_cast<std::size_t>(order.size())},
                                minibatch, how);
    }
    constexpr py::ssize_t kWidth = policy::kNumLossSums + 1;
    py::array_t<float> found({static_cast<py::ssize_t>(reports.size()), kWidth});
    float* to = found.mutable_data();
    for (const policy::PpoReport& report : reports) {
      to = std::copy(std::begin(report.sums), std::end(report.sums), to);
      *to++ = report.norm;
    }
    return found;
  }

  std::int64_t num_steps() const { return learner_.num_steps(); }

 private:
  static std::vector<policy::ParamView> ReadViews(const py::list& views) {
    std::vector<policy::ParamView> read;
    for (const py::handle item : views) {
      const auto view = item.cast<py::tuple>();
      read.push_back({view[0].cast<std::int32_t>(), view[1].cast<std::int64_t>(),
                      view[2].cast<std::vector<std::int64_t>>(),
                      view[3].cast<std::vector<std::int64_t>>()});
    }
    return read;
  }

  static void ReadKept(const py::tuple& kept, policy::Source& to) {
    to.squares = MutableFloats(kept[1]);
    if (!kept[0].is_none()) to.means = MutableFloats(kept[0]);
    for (const int i : {0, 1}) {
      if (kept[i].is_none() || kept[i].cast<py::array>().size() == to.size) continue;
      throw SpecError("the optimiser's state is of another size than the weights");
    }
    to.steps = kept[2].cast<std::int64_t>();
    const auto given = kept[3].cast<py::dict>();
    const auto number = [&](const char* name) { return given[name].cast<float>(); };
    to.rule = {.kind = KindOf(given["kind"].cast<std::string>(), to.means != nullptr),
               .lr = number("lr"),
               .beta1 = number("beta1"),
               .beta2 = number("beta2"),
               .eps = number("eps"),
               .weight_decay = number("weight_decay")};
  }

  static policy::OptimizerKind KindOf(const std::string& name, bool has_means) {
    using policy::OptimizerKind;
    if (name == "adam" && has_means) return OptimizerKind::kAdam;
    if (name == "adamw" && has_means) return OptimizerKind::kAdamW;
    if (name == "rmsprop") return OptimizerKind::kRmsprop;
    if (name == "rmsprop_tf") return OptimizerKind::kRmspropTf;
    throw SpecError("'" + name + "' is no optimiser, or lacks its means");
  }

  static policy::PpoSettings ReadSettings(const py::dict& given) {
    const auto number = [&](const char* name) { return given[name].cast<double>(); };
    // None is no limit; one below 0 is, as in torch
    const auto limit = [&](const char* name) {
      return given[name].cast<std::optional<double>>();
    };
    const std::optional<double> value_clip = limit("value_clip");
    policy::PpoSettings read;
    // 1 and the limit are added in double, as Python adds them
    read.rule = {.low = static_cast<float>(1.0 - number("clip")),
                 .high = static_cast<float>(1.0 + number("clip")),
                 .is_plain = given["is_plain"].cast<bool>(),
                 .limits_value = value_clip.has_value(),
                 .value_clip = static_cast<float>(value_clip.value_or(0)),
                 .value_worse = given["value_worse"].cast<bool>(),
                 .value_weight = static_cast<float>(number("value_weight")),
                 .entropy_weight = static_cast<float>(number("entropy_weight"))};
    read.max_norm = limit("max_norm");
    read.normalizes = given["normalizes"].cast<bool>();
    read.target_kl = limit("target_kl");
    return read;
  }

  policy::PpoLearner learner_;
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
  py::class_<PyPpoLearner>(module, "PpoLearner")
      .def(py::init([](std::int32_t obs_size, const py::list& ops, const py::list& params,
                       std::vector<std::int32_t> outputs, std::vector<std::int32_t> states,
                       const py::list& views, const std::vector<bool>& trained,
                       const std::string& head, std::vector<std::int32_t> nvec,
                       std::int32_t num_threads) {
             return std::make_unique<PyPpoLearner>(
                 ReadProgram(obs_size, ops, params, std::move(outputs), std::move(states)), views,
                 trained, policy::Head{.kind = HeadKindOf(head)}, std::move(nvec), num_threads);
           }),
           py::arg("obs_size"), py::arg("ops"), py::arg("params"), py::arg("outputs"),
           py::arg("states"), py::arg("views"), py::arg("trained"), py::arg("head"),
           py::arg("nvec"), py::arg("num_threads"))
      .def("update", &PyPpoLearner::Update, py::arg("sources"), py::arg("rows"), py::arg("order"),
           py::arg("minibatch"), py::arg("settings"))
      .def_property_readonly("num_steps", &PyPpoLearner::num_steps);
}

}  // namespace rollouts
