// SPDX-License-Identifier: Apache-2.0
// Gradients of a network for Python: for tests, and for losses computed there.
#include "rollouts/policy/gradients.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/gil.h"
#include "bindings/policy/policy.h"
#include "bindings/policy/trained_sources.h"
#include "policy/columns.h"
#include "rollouts/policy/ppo_learner.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

using FloatRows = py::array_t<float, py::array::c_style | py::array::forcecast>;
using Flags = py::array_t<std::uint8_t, py::array::c_style | py::array::forcecast>;

class PyGradients {
 public:
  PyGradients(const policy::Program& program, const std::vector<bool>& trained)
      : trained_(CheckTrained(program, trained)), gradients_(program, trained_) {}

  // Returns one array for each parameter, or None: sums over rows of `given[o]` (B, size) times the
  // derivative of output o with respect to the parameter. States follow the observations in a row,
  // and new states are outputs.
  py::list Run(const py::list& params, const FloatRows& obs, const py::list& given) const {
    const std::int64_t size = gradients_.network().input_size();
    const std::vector<FloatRows> outputs = ReadGiven(given, {obs.ndim() ? obs.shape(0) : -1});
    if (obs.ndim() != 2 || obs.shape(1) != size) Refuse();
    const float* rows = obs.data();
    const auto load = [&](std::int64_t first, std::int32_t columns, std::int32_t, float* to) {
      policy::GatherColumns(rows + first * size, columns, size, to);
    };
    return Compute(params, obs.shape(0), {}, load, outputs);
  }

  // The same for sequences: obs (T, B, obs_size), states before the first step (B, state_size), the
  // states that episodes begin with (state_size), ended (T, B), and given[o] (T, B, size).
  py::list RunSequences(const py::list& params, const FloatRows& obs, const FloatRows& states,
                        const FloatRows& initial, const Flags& ended, const py::list& given,
                        std::int32_t burn_in) const {
    const policy::Network& network = gradients_.network();
    const std::int64_t obs_size = network.program().obs_size, state_size = network.state_size();
    if (obs.ndim() != 3 || obs.shape(2) != obs_size || obs.shape(0) < 1) Refuse();
    const std::int64_t num_steps = obs.shape(0), count = obs.shape(1);
    const std::vector<FloatRows> outputs = ReadGiven(given, {num_steps, count});
    const bool fits = states.ndim() == 2 && states.shape(0) == count &&
                      states.shape(1) == state_size && initial.size() == state_size &&
                      ended.ndim() == 2 && ended.shape(0) == num_steps && ended.shape(1) == count &&
                      burn_in >= 0 && burn_in < num_steps;
    if (!fits) Refuse();
    const auto load = [&](std::int64_t first, std::int32_t columns, std::int32_t step, float* to) {
      policy::GatherColumns(obs.data() + (step * count + first) * obs_size, columns, obs_size, to);
      if (step > 0) return;
      policy::GatherColumns(states.data() + first * state_size, columns, state_size,
                            to + obs_size * policy::kColumns);
    };
    const auto begins = [&](std::int64_t sequence, std::int32_t step) {
      return ended.data()[(step - 1) * count + sequence] != 0;
    };
    const auto steps = static_cast<std::int32_t>(num_steps);
    return Compute(params, count, {steps, burn_in, initial.data(), begins}, load, outputs);
  }

 private:
  py::list Compute(const py::list& params, std::int64_t count, const policy::Sequences& sequences,
                   const policy::Gradients::Load& load,
                   const std::vector<FloatRows>& given) const {
    const policy::Network& network = gradients_.network();
    std::vector<FloatRows> held;
    std::vector<std::span<const float>> spans;
    for (const py::handle param : params) {
      held.push_back(py::cast<FloatRows>(param));
      spans.emplace_back(held.back().data(), static_cast<std::size_t>(held.back().size()));
    }
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
    const auto loss = [&](const policy::ChunkOutputs& chunk) {
      for (std::size_t o = 0; o < given.size(); ++o) {
        const std::int32_t features = network.output_size(o);
        const float* from = given[o].data() + (chunk.step * count + chunk.first) * features;
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
    gradients_.Run(weights, 0, count, sequences, load, loss, room, sums.data());
    gradients_.Unpack(sums.data(), to);
    return arrays;
  }

  // Arrays (*lead, size), one for each output.
  std::vector<FloatRows> ReadGiven(const py::list& given,
                                   const std::vector<py::ssize_t>& lead) const {
    const policy::Network& network = gradients_.network();
    if (given.size() != network.program().outputs.size()) Refuse();
    std::vector<FloatRows> found;
    for (const py::handle each : given) {
      const auto array = py::cast<FloatRows>(each);
      std::vector<py::ssize_t> shape = lead;
      shape.push_back(network.output_size(found.size()));
      if (!std::equal(shape.begin(), shape.end(), array.shape(), array.shape() + array.ndim())) {
        Refuse();
      }
      found.push_back(array);
    }
    return found;
  }

  [[noreturn]] static void Refuse() {
    throw SpecError(
        "gradients are (B, size) or (T, B, size) for each output of the network, as observations "
        "and states are");
  }

  std::vector<bool> trained_;
  policy::Gradients gradients_;
};

using Longs = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;

policy::Head CheckedHead(const std::string& name) {
  const policy::Head head{.kind = HeadKindOf(name)};
  using policy::HeadKind;
  if (head.kind != HeadKind::kTanhGaussian && head.kind != HeadKind::kEpsilonGreedy) return head;
  throw SpecError("head is '" + name + "', expected categorical, multi_categorical or gaussian");
}

// Owns the rows of a batch. The learner reads them by pointer, so their sizes are checked.
class CheckedRows {
 public:
  CheckedRows(const policy::Network& network, const policy::Head& head, std::size_t elements,
              const py::dict& given, const policy::PpoRule& rule)
      : given_(given) {
    const auto obs = Given("obs").cast<FloatRows>();
    if (obs.ndim() != 2 || obs.shape(1) != network.program().obs_size) {
      throw SpecError("obs has shape " + ShapeString(obs) + ", expected (B, " +
                      std::to_string(network.program().obs_size) + ")");
    }
    held_.push_back(obs);
    rows_.count = obs.shape(0);
    rows_.obs = obs.data();
    ReadSequences(network.state_size());
    if (policy::IsDiscrete(head.kind)) {
      rows_.index = Columns<std::int64_t>("index", std::max<std::size_t>(elements, 1));
    } else {
      rows_.box = Columns<float>("box", static_cast<std::size_t>(network.output_size(0)));
    }
    rows_.log_prob = Numbers("log_prob");
    rows_.advantage = Numbers("advantage");
    const bool has_value = network.num_outputs() > policy::NumHeadInputs(head.kind);
    if (has_value) rows_.target = Numbers("target");
    if (rule.limits_value || given.contains("value")) rows_.value = Numbers("value");
    if (given.contains("log_slope")) rows_.log_slope = Numbers("log_slope");
    if (rule.has_kl || given.contains("inputs")) {
      const int parts = policy::NumHeadInputs(head.kind);
      rows_.inputs = Columns<float>("inputs", parts * static_cast<std::size_t>(network.output_size(0)));
    }
    if (given.contains("counts")) rows_.counts = Columns<std::uint8_t>("counts", 1);
    if (given.contains("mask")) {
      if (!policy::IsDiscrete(head.kind)) throw SpecError("actions of a Box cannot be masked");
      rows_.mask = Columns<std::uint8_t>("mask", static_cast<std::size_t>(network.output_size(0)));
    }
  }

  const policy::ActedRows& rows() const { return rows_; }

 private:
  py::object Given(const char* name) const {
    if (given_.contains(name)) return given_[name];
    throw SpecError("rows have no " + std::string(name) + ", which this loss and head need");
  }

  // Sequences of rows, where the network has memory.
  void ReadSequences(std::int64_t state_size) {
    if (state_size == 0) return;
    rows_.num_steps = Given("num_steps").cast<std::int32_t>();
    rows_.burn_in = Given("burn_in").cast<std::int32_t>();
    const std::int64_t steps = rows_.num_steps;
    if (steps < 1 || rows_.count % steps != 0 || rows_.burn_in < 0 || rows_.burn_in >= steps) {
      throw SpecError("there are " + std::to_string(rows_.count) + " rows in sequences of " +
                      std::to_string(steps) + " steps with a burn-in of " +
                      std::to_string(rows_.burn_in) +
                      ", expected whole sequences and fewer steps of burn-in");
    }
    rows_.states = Array<float>("states", rows_.num_sequences(), state_size);
    rows_.initial = Array<float>("initial", 1, state_size);
    rows_.ended = Columns<std::uint8_t>("ended", 1);
  }

  // One number for each row.
  const float* Numbers(const char* name) {
    const auto array = Given(name).cast<FloatRows>();
    if (array.size() != rows_.count) {
      throw SpecError(std::string(name) + " has " + std::to_string(array.size()) +
                      " numbers, expected " + std::to_string(rows_.count) +
                      ": one for each row of obs");
    }
    held_.push_back(array);
    return array.data();
  }

  // `width` numbers for each row.
  template <typename T>
  const T* Columns(const char* name, std::size_t width) {
    return Array<T>(name, rows_.count, static_cast<std::int64_t>(width));
  }

  template <typename T>
  const T* Array(const char* name, std::int64_t count, std::int64_t width) {
    const auto array =
        Given(name).cast<py::array_t<T, py::array::c_style | py::array::forcecast>>();
    if (array.ndim() != 2 || array.shape(0) != count || array.shape(1) != width) {
      throw SpecError(std::string(name) + " has shape " + ShapeString(array) + ", expected (" +
                      std::to_string(count) + ", " + std::to_string(width) +
                      (count == rows_.count ? "): one row for each of obs" : ")"));
    }
    held_.push_back(array);
    return array.data();
  }

  const py::dict given_;
  std::vector<py::object> held_;
  policy::ActedRows rows_;
};

void CheckOrder(const Longs& order, std::int64_t minibatch, std::int64_t count) {
  if (minibatch < 1) {
    throw SpecError("minibatch is " + std::to_string(minibatch) + ", expected 1 or more rows");
  }
  const std::int64_t* const end = order.data() + order.size();
  const auto* const found = std::find_if(
      order.data(), end, [count](std::int64_t row) { return row < 0 || row >= count; });
  if (found == end) return;
  throw SpecError("order names row " + std::to_string(*found) + ", expected 0 to " +
                  std::to_string(count - 1));
}

class PyPpoLearner {
 public:
  PyPpoLearner(const policy::Program& program, const py::list& views,
               const std::vector<bool>& trained, const policy::Head& head,
               const std::vector<std::int32_t>& nvec, std::int32_t num_threads)
      : head_(head),
        num_elements_(nvec.size()),
        sources_(views, program),
        learner_(program, sources_.views(), CheckTrained(program, trained), head, nvec, num_threads) {
    CheckHead(head, nvec, learner_.network());
  }

  // Reports (minibatches, kNumLossSums + 1).
  py::array_t<float> Update(const py::list& sources, const py::dict& rows, const Longs& order,
                            std::int64_t minibatch, const py::dict& settings,
                            const std::optional<double>& timeout_s, const py::object& average) {
    const std::vector<policy::Source> read = sources_.Read(sources);
    const policy::MeanOverProcesses mean = MeanBy(average);
    const policy::PpoSettings how = ReadSettings(settings);
    const CheckedRows acted(learner_.network(), head_, num_elements_, rows, how.rule);
    CheckOrder(order, minibatch, acted.rows().num_sequences());
    std::vector<policy::PpoReport> reports;
    UpdateLimit limit(timeout_s);
    const policy::UpdateStop stop = limit.stop();
    lock_.Run(stop, [&] {
      const std::span<const std::int64_t> names(order.data(), static_cast<std::size_t>(order.size()));
      reports = learner_.Update(read, acted.rows(), names, minibatch, how, stop, mean);
    });
    constexpr py::ssize_t kWidth = policy::kNumLossSums + 1;
    py::array_t<float> found({static_cast<py::ssize_t>(reports.size()), kWidth});
    float* to = found.mutable_data();
    for (const policy::PpoReport& report : reports) {
      to = std::copy(std::begin(report.sums), std::end(report.sums), to);
      *to++ = report.norm;
    }
    return found;
  }

  // Log-density, entropy and value of each row (3, count).
  py::array_t<float> Evaluate(const py::list& sources, const py::dict& rows) {
    const std::vector<policy::Source> read = sources_.Read(sources);
    const CheckedRows acted(learner_.network(), head_, num_elements_, rows, {});
    const py::ssize_t count = acted.rows().count;
    py::array_t<float> found({py::ssize_t{3}, count});
    float* const to = found.mutable_data();
    std::fill_n(to, found.size(), 0.0f);
    const std::size_t num_inputs = policy::NumHeadInputs(head_.kind);
    float* const value = learner_.network().num_outputs() > num_inputs ? to + 2 * count : nullptr;
    UpdateLimit limit(std::nullopt);
    const policy::UpdateStop stop = limit.stop();
    lock_.Run(stop, [&] {
      learner_.Evaluate(read, acted.rows(), {to, to + count, value}, stop);
    });
    return found;
  }

  std::int64_t num_steps() const { return learner_.num_steps(); }

 private:
  static policy::PpoSettings ReadSettings(const py::dict& given) {
    const auto number = [&](const char* name) { return given[name].cast<double>(); };
    // None means no limit; a number below 0 is a limit, as in torch
    const auto limit = [&](const char* name) {
      return given[name].cast<std::optional<double>>();
    };
    const std::optional<double> value_clip = limit("value_clip");
    const std::optional<double> error_cap = limit("error_cap"), kl_weight = limit("kl_weight");
    const std::optional<double> huber = limit("value_huber");
    policy::PpoSettings read;
    // 1 and the limit are added in double, as Python adds them
    read.rule = {.low = static_cast<float>(1.0 - number("clip")),
                 .high = static_cast<float>(1.0 + number("clip")),
                 .is_plain = given["is_plain"].cast<bool>(),
                 .limits_value = value_clip.has_value(),
                 .value_clip = static_cast<float>(value_clip.value_or(0)),
                 .value_worse = given["value_worse"].cast<bool>(),
                 .value_weight = static_cast<float>(number("value_weight")),
                 .is_huber = huber.has_value(),
                 .huber = static_cast<float>(huber.value_or(0)),
                 .caps_error = error_cap.has_value(),
                 .error_cap = static_cast<float>(error_cap.value_or(0)),
                 .has_kl = kl_weight.has_value(),
                 .kl_weight = static_cast<float>(kl_weight.value_or(0)),
                 .entropy_weight = static_cast<float>(number("entropy_weight"))};
    read.max_norm = limit("max_norm");
    read.clip_by = ClipByOf(given["clip_by"].cast<std::string>());
    read.normalizes = given["normalizes"].cast<bool>();
    read.target_kl = limit("target_kl");
    read.refuses_overflow = given["refuses_overflow"].cast<bool>();
    return read;
  }

  LearnerLock lock_;
  const policy::Head head_;
  const std::size_t num_elements_;
  const TrainedSources sources_;
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
      .def("run", &PyGradients::Run, py::arg("params"), py::arg("obs"), py::arg("given"))
      .def("run_sequences", &PyGradients::RunSequences, py::arg("params"), py::arg("obs"),
           py::arg("states"), py::arg("initial"), py::arg("ended"), py::arg("given"),
           py::arg("burn_in") = 0);
  py::class_<PyPpoLearner>(module, "PpoLearner")
      .def(py::init([](std::int32_t obs_size, const py::list& ops, const py::list& params,
                       std::vector<std::int32_t> outputs, std::vector<std::int32_t> states,
                       const py::list& views, const std::vector<bool>& trained,
                       const std::string& head, const std::vector<std::int32_t>& nvec,
                       std::int32_t num_threads) {
             return std::make_unique<PyPpoLearner>(
                 ReadProgram(obs_size, ops, params, std::move(outputs), std::move(states)), views,
                 trained, CheckedHead(head), nvec, num_threads);
           }),
           py::arg("obs_size"), py::arg("ops"), py::arg("params"), py::arg("outputs"),
           py::arg("states"), py::arg("views"), py::arg("trained"), py::arg("head"),
           py::arg("nvec"), py::arg("num_threads"))
      .def("update", &PyPpoLearner::Update, py::arg("sources"), py::arg("rows"), py::arg("order"),
           py::arg("minibatch"), py::arg("settings"), py::arg("timeout_s") = py::none(),
           py::arg("average") = py::none())
      .def("evaluate", &PyPpoLearner::Evaluate, py::arg("sources"), py::arg("rows"))
      .def_property_readonly("num_steps", &PyPpoLearner::num_steps);
  BindRowLosses(module);
}

}  // namespace rollouts
